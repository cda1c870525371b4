//! Which requests are served first where an origin cannot serve all of them at once.

/// The version of the hash in [`Priority::page_kind`]. What is kept under a hash is kept under its version, too: a
/// change of the hash raises it, so that no kind is taken for another.
pub const PAGE_KIND_VERSION: u32 = 1;

/// The class of a request, by what is proven about its visitor. Earlier ones are served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestClass {
    /// The session store or the app has named the user.
    Known,
    /// A login: the page with its form, the form, and other requests that change something.
    LogIn,
    /// A visitor without a login asks for a page that others have asked for, or comes from the network of a known user.
    Seen,
    /// Any other visitor without a login. A session token that was only sent proves nothing.
    New,
    /// A request of the proxy's own accord.
    Background,
}

impl RequestClass {
    /// All of them, the first served first.
    pub const ALL: [Self; 5] = [Self::Known, Self::LogIn, Self::Seen, Self::New, Self::Background];

    /// Its name in the configuration, the log and the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::LogIn => "login",
            Self::Seen => "seen",
            Self::New => "new",
            Self::Background => "background",
        }
    }

    /// Whether nothing is proven about the visitor.
    #[must_use]
    pub fn is_stranger(self) -> bool {
        matches!(self, Self::Seen | Self::New | Self::Background)
    }
}

/// The most requests of strangers that an origin works on at once for one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteLimit {
    /// The route, by a hash.
    pub route: u64,
    /// The most requests.
    pub max: u32,
}

/// When a request is served where others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Its class.
    pub class: RequestClass,
    /// Whether it changes something. Of logins, the form comes before the page that shows it.
    pub is_change: bool,
    /// Its flow, by a hash: the user, or the network of another visitor. Within a class, flows are served alike.
    pub flow: u64,
    /// The kind of page that it is for, by a hash: of one kind it is known how long the origin takes.
    pub page_kind: u64,
    /// The limit of its route for requests of strangers, if there is one.
    pub route_limit: Option<RouteLimit>,
    /// Whether it is one of a known user with more of them than its share: it ranks as a stranger's, and is none.
    pub is_over_quota: bool,
}

impl Priority {
    /// That of a request of the proxy's own accord.
    pub const BACKGROUND: Self = Self {
        class: RequestClass::Background,
        is_change: false,
        flow: 0,
        page_kind: 0,
        route_limit: None,
        is_over_quota: false,
    };

    /// Whether limits of strangers count it: it is neither a known user's nor a login, nor of the proxy's own accord.
    #[must_use]
    pub fn counts_as_stranger(&self) -> bool {
        matches!(self.class, RequestClass::Seen | RequestClass::New) && !self.is_over_quota
    }
}

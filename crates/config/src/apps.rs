//! `[session] app`: defaults for the sessions of well-known apps, and for what their requests purge. A key in the configuration takes
//! precedence.
//!
//! How their logins look on the wire is described in `tests/apps/README.md`.

use ::http::Method;
use anteroom_http::extract::{ExpectedValue, Expression, Extractor, ResponseMatcher};
use anteroom_http::path::{PathPattern, PurgePath};
use anteroom_http::pattern::Pattern;
use anteroom_policy::login::{LoginUser, RequestPattern, Success};
use anteroom_policy::purge_rule::PurgeRule;

use super::plan::{AppPreset, Cache, Login, Logout, Purge, SessionConfig, Verify};

/// Their names in the configuration.
pub(super) const APPS: [(&str, Option<AppPreset>); 6] = [
    ("none", None),
    ("wordpress", Some(AppPreset::WordPress)),
    ("mediawiki", Some(AppPreset::MediaWiki)),
    ("django", Some(AppPreset::Django)),
    ("tomcat", Some(AppPreset::Tomcat)),
    ("php", Some(AppPreset::Php)),
];

impl AppPreset {
    /// What is missing without `[session.verify]`, for apps that have no standard page naming the visitor
    /// and no login response with the user's name.
    pub(super) fn lacks(self) -> Option<&'static str> {
        match self {
            Self::WordPress | Self::MediaWiki => None,
            Self::Php => Some(
                "PHP's session cookie alone does not prove a login: visitors with one are unknown, \
                 and their requests are forwarded; set [session.verify] path, user and nobody to a \
                 page that names the logged-in user",
            ),
            Self::Django | Self::Tomcat => Some(
                "the name entered at login is only a label, and visitors with an older session are \
                 unknown; if a page names the logged-in user, set [session.verify] path, user and \
                 nobody",
            ),
        }
    }

    /// Sets the app's session settings.
    pub(super) fn set(self, session: &mut SessionConfig) {
        match self {
            Self::WordPress => wordpress(session),
            Self::MediaWiki => mediawiki(session),
            Self::Django => django(session),
            Self::Tomcat => tomcat(session),
            Self::Php => session.cookies = patterns(&["PHPSESSID"]),
        }
    }

    /// Sets the app's cookies that pages for other visitors do not depend on.
    pub(super) fn ignore(self, cache: &mut Cache) {
        cache.ignore_cookies = match self {
            Self::WordPress => patterns(&WORDPRESS_HARMLESS),
            Self::MediaWiki => {
                patterns(&["*UserName", "*LoggedOut", "*mwuser-sessionId", "mwuser-sessionId"])
            }
            // Pages with a form that needs this cookie are never shared.
            Self::Django => patterns(&["csrftoken"]),
            Self::Tomcat | Self::Php => Vec::new(),
        };
    }

    /// Sets the app's requests that change more pages than their own.
    pub(super) fn purge(self, purge: &mut Purge) {
        purge.after = match self {
            Self::WordPress => wordpress_purges(),
            Self::MediaWiki | Self::Django | Self::Tomcat | Self::Php => Vec::new(),
        };
    }
}

/// What WordPress and WooCommerce show on other pages than the one that a request is for. It is decided by the
/// request alone, so a rule names no page in particular.
fn wordpress_purges() -> Vec<PurgeRule> {
    // These are the writing methods of the REST API. Saves that only protect an editor's work have paths of
    // their own (`/posts/7/autosaves`), and an upload is shown by no page until a post names it.
    let rest = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let post = [Method::POST];
    let rule = |methods: &[Method], paths: &[&str], purges: &[&str]| PurgeRule {
        matching: requests(methods, paths, &[]),
        form: Vec::new(),
        status: Vec::new(),
        purges: purges.iter().map(|text| branch(text)).collect(),
    };
    let form = |fields: &[(&str, &[&str])]| PurgeRule {
        form: fields
            .iter()
            .map(|(name, values)| {
                ((*name).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
            })
            .collect(),
        ..rule(&post, &["/**/wp-admin/admin-ajax.php"], &["/**"])
    };
    vec![
        // The editors' pages of wp-admin. A request without a login is redirected to wp-login.php.
        rule(&post, &WORDPRESS_ADMIN, &["/**"]),
        rule(&rest, &WORDPRESS_REST, &["/**"]),
        // Quick edit, tags, and comments in lists. `heartbeat`, which also saves drafts, is not among them.
        form(&[("action", &WORDPRESS_AJAX)]),
        form(&[("action", &["customize_save"]), ("customize_changeset_status", &["publish"])]),
        // The page of the comment is in the response's `Location`.
        rule(&post, &["/**/wp-comments-post.php"], &["/feed/**", "/comments/feed/**"]),
        // Stock. A failed order is answered 200 by `wc-ajax`, and 302 with an empty cart: what an order makes
        // stale is bounded to the shop's pages, because visitors without a login can cause it.
        rule(&post, &["/**/wp-json/wc/store/v1/checkout", "/**/wp-json/wc/store/checkout"], &SHOP),
        PurgeRule { status: vec![302], ..rule(&post, &["/**/checkout/"], &SHOP) },
        PurgeRule {
            matching: requests(&post, &["/**"], &[("wc-ajax", "checkout")]),
            ..rule(&post, &["/**"], &SHOP)
        },
        rule(&rest, &["/**/wp-json/wc/v3/orders", "/**/wp-json/wc/v3/orders/*"], &SHOP),
    ]
}

const WORDPRESS_ADMIN: [&str; 5] = [
    "/**/wp-admin/post.php",
    "/**/wp-admin/comment.php",
    "/**/wp-admin/edit-tags.php",
    "/**/wp-admin/nav-menus.php",
    "/**/wp-admin/options.php",
];

const WORDPRESS_REST: [&str; 32] = [
    "/**/wp-json/wp/v2/posts",
    "/**/wp-json/wp/v2/posts/*",
    "/**/wp-json/wp/v2/pages",
    "/**/wp-json/wp/v2/pages/*",
    "/**/wp-json/wp/v2/comments",
    "/**/wp-json/wp/v2/comments/*",
    "/**/wp-json/wp/v2/media/*",
    "/**/wp-json/wp/v2/categories",
    "/**/wp-json/wp/v2/categories/*",
    "/**/wp-json/wp/v2/tags",
    "/**/wp-json/wp/v2/tags/*",
    "/**/wp-json/wp/v2/blocks/*",
    "/**/wp-json/wp/v2/navigation/*",
    "/**/wp-json/wp/v2/menus/*",
    "/**/wp-json/wp/v2/menu-items",
    "/**/wp-json/wp/v2/menu-items/*",
    "/**/wp-json/wp/v2/global-styles/*",
    // The site editor. A template's id is `theme//name`; its autosaves have one segment more.
    "/**/wp-json/wp/v2/templates",
    "/**/wp-json/wp/v2/templates/*//*",
    "/**/wp-json/wp/v2/template-parts",
    "/**/wp-json/wp/v2/template-parts/*//*",
    "/**/wp-json/wp/v2/widgets",
    "/**/wp-json/wp/v2/widgets/*",
    "/**/wp-json/wp/v2/sidebars/*",
    "/**/wp-json/wp/v2/settings",
    "/**/wp-json/wc/v3/products",
    "/**/wp-json/wc/v3/products/batch",
    "/**/wp-json/wc/v3/products/*",
    "/**/wp-json/wc/v3/products/*/variations",
    "/**/wp-json/wc/v3/products/*/variations/*",
    "/**/wp-json/wc/v3/products/categories/*",
    "/**/wp-json/wc/v3/products/reviews/*",
];

const WORDPRESS_AJAX: [&str; 11] = [
    "inline-save",
    "inline-save-tax",
    "add-tag",
    "delete-tag",
    "edit-comment",
    "replyto-comment",
    "dim-comment",
    "delete-comment",
    "save-widget",
    "widgets-order",
    "set-post-thumbnail",
];

/// The default paths of WooCommerce's pages with products.
const SHOP: [&str; 3] = ["/shop/**", "/product/**", "/product-category/**"];

/// Cookies that no page for visitors without a login depends on.
///
/// Not listed, because PHP reads them and changes pages by them:
/// - `comment_author_*` (WordPress, `wp_get_current_commenter`) and `wp-postpass_*` (`post_password_required`).
/// - `woocommerce_cart_hash`, `woocommerce_items_in_cart`, `wp_woocommerce_session_*` (WooCommerce,
///   `WC_Cart_Session` and `WC_Session_Handler`): themes print the cart into pages.
/// - `woocommerce_recently_viewed` (`WC_Widget_Recently_Viewed`).
/// - `pll_language` (Polylang, `PLL_Choose_Lang`) and `wp-wpml_current_language` (WPML): the language.
/// - Cookies of consent. The plugins print scripts only after consent, and have functions in PHP for themes:
///   `cookie_notice_accepted` (Cookie Notice, `cn_cookies_accepted`), `viewed_cookie_policy` and
///   `cookielawinfo-*` (Cookie Law Info), `moove_gdpr_popup` (GDPR Cookie Compliance, `gdpr_get_php_cookies`),
///   `borlabs-cookie` (Borlabs, `checkConsent`), `cmplz_*` (Complianz, `cmplz_has_consent`),
///   `real_cookie_banner*` (Real Cookie Banner, `wp_rcb_consent_given`), `CookieConsent` (Cookiebot) and
///   `cookieyes-consent` (CookieYes), which other plugins read.
const WORDPRESS_HARMLESS: [&str; 4] = [
    // WordPress, wp-login.php: whether the browser keeps cookies. It stays behind a logout.
    "wordpress_test_cookie",
    // WordPress, `wp_user_settings`: the look of wp-admin. It stays for a year after a logout.
    "wp-settings-*",
    // WordPress, `determine_locale`: the language of wp-login.php, and of no other page.
    "wp_lang",
    // WooCommerce, assets/js/frontend/woocommerce.js: a script hides the notice that was dismissed.
    "store_notice*",
];

/// No page names the logged-in user to requests with all paths' cookies. The cookie itself names the user,
/// who has proved the login when it is set.
fn wordpress(session: &mut SessionConfig) {
    session.cookies = patterns(&["wordpress_logged_in_*", "wordpress_sec_*"]);
    // user%7Cexpiration%7Ctoken%7Chmac is over 256 bytes for a long name.
    session.token_is_digest = true;
    let cookie = || pattern("wordpress_logged_in_*");
    session.login = Login {
        matching: matching(&[Method::POST], &["/**/wp-login.php"], &[]),
        success: Success { status: vec![302], set_cookie: Some(cookie()), ..Success::default() },
        verify: false,
        // A name such as ann@example.org appears as ann%40example.org.
        user: Some(LoginUser::Answer(Extractor::SetCookie {
            name: cookie(),
            part: Some(expression("^(.+?)(?:%7[Cc]|\\|)")),
            decode: true,
        })),
    };
    session.logout = Logout {
        matching: matching(
            &[Method::GET, Method::POST],
            &["/**/wp-login.php"],
            &[("action", "logout")],
        ),
        success: Success { status: vec![302], clears_cookie: Some(cookie()), ..Success::default() },
    };
}

/// The API names the logged-in user; for an anonymous visitor it returns the address.
fn mediawiki(session: &mut SessionConfig) {
    session.cookies = patterns(&["*_session", "*Token", "*UserID"]);
    session.verify = Verify {
        path: Some("/api.php?action=query&meta=userinfo&format=json&formatversion=2".to_owned()),
        user: Some(Extractor::Json("/query/userinfo/name".to_owned())),
        anonymous: Some(ResponseMatcher::Json(
            "/query/userinfo/id".to_owned(),
            ExpectedValue::Number(0),
        )),
        ..Verify::default()
    };
}

fn django(session: &mut SessionConfig) {
    session.cookies = patterns(&["sessionid"]);
    let success = Success { status: vec![302], ..Success::default() };
    let cookie = || Some(pattern("sessionid"));
    session.login = Login {
        matching: matching(&[Method::POST], &["/accounts/login/", "/admin/login/"], &[]),
        success: Success { set_cookie: cookie(), ..success },
        verify: false,
        user: Some(LoginUser::Form("username".to_owned())),
    };
    session.logout = Logout {
        matching: matching(
            &[Method::GET, Method::POST],
            &["/accounts/logout/", "/admin/logout/"],
            &[],
        ),
        success: Success { clears_cookie: cookie(), ..Success::default() },
    };
}

/// The id changes at login; the route after the dot changes with the server.
fn tomcat(session: &mut SessionConfig) {
    session.cookies = patterns(&["JSESSIONID", "JSESSIONIDSSO"]);
    session.part = Some(expression("^([^.]+)"));
    session.login = Login {
        matching: matching(&[Method::POST], &["/**/j_security_check"], &[]),
        success: Success {
            status: vec![302, 303],
            set_cookie: Some(pattern("JSESSIONID")),
            ..Success::default()
        },
        verify: false,
        user: Some(LoginUser::Form("j_username".to_owned())),
    };
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| pattern(text)).collect()
}

// The texts below are constants of this file, and a test parses all of them.

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern of our own")
}

fn expression(text: &str) -> Expression {
    Expression::new(text).expect("an expression of our own")
}

fn branch(text: &str) -> PurgePath {
    PurgePath::parse(text).expect("a path of our own")
}

fn matching(methods: &[Method], paths: &[&str], query: &[(&str, &str)]) -> Option<RequestPattern> {
    Some(requests(methods, paths, query))
}

fn requests(methods: &[Method], paths: &[&str], query: &[(&str, &str)]) -> RequestPattern {
    let path = |text: &&str| PathPattern::parse(text).expect("a path of our own");
    RequestPattern {
        methods: methods.to_vec(),
        paths: paths.iter().map(path).collect(),
        query: query.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preset_of_each_app_can_be_read() {
        for (name, app) in APPS.iter().filter_map(|(name, app)| Some((name, (*app)?))) {
            let (mut session, mut cache) = (SessionConfig::default(), Cache::default());
            app.set(&mut session);
            app.ignore(&mut cache);
            app.purge(&mut Purge::default());
            assert_ne!(session, SessionConfig::default(), "{name}");
        }
    }
}

//! What a store was asked, and so may tell.

/// What is known of a visitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) is_logged_in: bool,
    /// How many of the one item are in the cart.
    pub(super) cart: i64,
    /// When the one item was last viewed.
    pub(super) seen: u64,
}

/// What a visitor does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    LogIn(u64),
    LogOut,
    Cart(i64),
    /// It lasts from the next sync on; all others from their answer on.
    Visit(u64),
}

impl Act {
    fn is_durable(self) -> bool {
        !matches!(self, Self::Visit(_))
    }

    fn on(self, session: Session) -> Session {
        match self {
            Self::LogIn(_) => Session { is_logged_in: true, ..session },
            Self::LogOut => Session::default(),
            Self::Cart(cart) => Session { cart, ..session },
            Self::Visit(seen) if session.is_logged_in => Session { seen, ..session },
            Self::Visit(_) => session,
        }
    }
}

/// What the store may tell of one visitor.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    /// If nothing is lost.
    latest: Vec<Session>,
    /// If what is not durable yet is lost, or a part of it.
    possible: Vec<Session>,
    /// What it may have told at any time.
    history: Vec<Session>,
}

impl Belief {
    pub(super) fn may_be(&self, session: &Session) -> bool {
        self.possible.contains(session)
    }

    pub(super) fn has_been(&self, session: &Session) -> bool {
        self.history.contains(session)
    }

    fn asked(&mut self, act: Act, is_done: bool) {
        let after: Vec<_> = self.latest.iter().map(|session| act.on(*session)).collect();
        add(&mut self.possible, &after);
        add(&mut self.history, &after);
        if is_done {
            self.latest = after;
        } else {
            // Of a group that has failed, everything may be there, or nothing.
            let after: Vec<_> = self.possible.iter().map(|session| act.on(*session)).collect();
            add(&mut self.possible, &after);
            add(&mut self.history, &after);
        }
    }
}

fn add(sessions: &mut Vec<Session>, others: &[Session]) {
    for session in others {
        if !sessions.contains(session) {
            sessions.push(*session);
        }
    }
}

/// What the store may tell of all visitors.
#[derive(Debug)]
pub(super) struct Facts(Vec<Belief>);

impl Facts {
    /// Nothing was asked yet.
    pub(super) fn new(visitors: usize) -> Self {
        let nothing = vec![Session::default()];
        let belief =
            Belief { latest: nothing.clone(), possible: nothing.clone(), history: nothing };
        Self(vec![belief; visitors])
    }

    pub(super) fn of(&self, visitor: usize) -> &Belief {
        &self.0[visitor]
    }

    /// A group was asked, and done as a whole, or not.
    pub(super) fn asked(&mut self, group: &[(usize, Act)], is_done: bool) {
        for (visitor, act) in group {
            self.0[*visitor].asked(*act, is_done);
        }
        if !is_done || group.iter().any(|(_, act)| act.is_durable()) {
            self.synced(is_done);
        }
    }

    /// All that was done before is durable; or some of it may be lost.
    pub(super) fn synced(&mut self, is_done: bool) {
        for belief in &mut self.0 {
            if is_done {
                belief.possible.clone_from(&belief.latest);
            } else {
                belief.latest.clone_from(&belief.possible);
            }
        }
    }

    /// What the store has told after it was opened lasts.
    pub(super) fn found(&mut self, visitor: usize, session: Session) {
        let belief = &mut self.0[visitor];
        (belief.latest, belief.possible) = (vec![session], vec![session]);
    }
}

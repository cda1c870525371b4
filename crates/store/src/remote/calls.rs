//! The calls that travel: how this process sends each of them, and how the other carries it out.

use std::slice::Iter;
use std::time::Duration;

use anteroom_http::ident::{CookieHash, Item, PageKey, Row, StoredToken, User, VisitorToken};
use bytes::Bytes;
use serde_json::Value;

use super::wire::{FromWire, ToWire};
use super::{CallKind, RemoteStore};
use crate::{
    AnswerStore, AnyStore, Cart, CartAnswer, CartChange, CartOwner, CartStore, ClaimResult,
    EndedCarts, ExpiryAction, Generation, Lease, LogIn, LogInStore, MergeResult, PageStore,
    PurgePosition, PurgeStore, RequestFrequency, RescaleResult, Rescaling, RevocationStore,
    Rotation, RotationResult, RowClaim, RowStore, RowTerm, ScheduledRow, SessionLifetimes,
    StoreError, StoreNews, StoredRow, TokenCreation, TokenStore, UncountedViews, ViewStore, Visit,
    VisitStore, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

/// Makes of a list of calls the traits of a [`RemoteStore`], and [`dispatch`]. An argument is passed `by` value, as a
/// reference (`ref`, and `opt` if it may be missing), or as a slice (`all`).
macro_rules! calls {
    (@type by $type:ty) => { $type };
    (@type ref $type:ty) => { &$type };
    (@type opt $type:ty) => { Option<&$type> };
    (@type all $type:ty) => { &[$type] };
    (@owned by $type:ty) => { $type };
    (@owned ref $type:ty) => { $type };
    (@owned opt $type:ty) => { Option<$type> };
    (@owned all $type:ty) => { Vec<$type> };
    (@lend by $name:ident) => { $name };
    (@lend ref $name:ident) => { &$name };
    (@lend opt $name:ident) => { $name.as_ref() };
    (@lend all $name:ident) => { &$name };
    ($($store:ident {
        sent { $($kind:ident $call:ident($($how:tt $name:ident: $type:ty),*) -> $answer:ty;)* }
        away { $($left:ident($($unused:ty),*) -> $none:ty;)* }
    })*) => {
        $(impl $store for RemoteStore {
            $(async fn $call(
                &self,
                $($name: calls!(@type $how $type)),*
            ) -> Result<$answer, StoreError> {
                let args = vec![$(ToWire::to_wire(&$name)),*];
                self.ask(CallKind::$kind, stringify!($call), args).await
            })*

            $(async fn $left(&self, $(_: $unused),*) -> Result<$none, StoreError> {
                Err(StoreError::Away)
            })*
        })*

        async fn dispatch_listed(
            store: &AnyStore,
            call: &str,
            args: &[Value],
        ) -> Option<Result<Value, StoreError>> {
            let mut args = args.iter();
            match call {
                $($(stringify!($call) => {
                    $(let $name: calls!(@owned $how $type) = argument(&mut args)?;)*
                    let answer = store.$call($(calls!(@lend $how $name)),*).await;
                    Some(answer.map(|answer| answer.to_wire()))
                })*)*
                _ => None,
            }
        }
    };
}

/// Carries out a call. `None`: this version does not know it, or one of its arguments.
pub(super) async fn dispatch(
    store: &AnyStore,
    call: &str,
    args: &[Value],
) -> Option<Result<Value, StoreError>> {
    dispatch_listed(store, call, args).await
}

fn argument<T: FromWire>(args: &mut Iter<'_, Value>) -> Option<T> {
    args.next().and_then(T::from_wire)
}

calls! {
    TokenStore {
        sent {
            Read check_token(ref token: StoredToken) -> Option<User>;
            Read live_token(ref token: StoredToken, ref terms: SessionLifetimes) -> Option<LogIn>;
        }
        away {}
    }

    LogInStore {
        sent {
            Change update_token(ref token: StoredToken, ref user: User, opt item: Item, by now: f64) -> ();
            Change rotate_token(ref rotation: Rotation) -> RotationResult;
            Change revoke_token(ref token: StoredToken) -> ();
            Change dismiss_token(ref token: StoredToken, ref expiry_action: ExpiryAction) -> EndedCarts;
        }
        away {
            finish_handovers(f64) -> usize;
        }
    }

    VisitStore {
        sent {
            Change touch_within_reach(all visits: Visit) -> Vec<Option<bool>>;
            Change count_within_reach(all views: (Item, u64)) -> UncountedViews;
        }
        away {
            touch_tokens(&[Visit]) -> Vec<bool>;
            count_views(&[(Item, u64)]) -> ();
        }
    }

    CartStore {
        sent {
            Change add_to_cart(ref token: StoredToken, ref item: Item, by count: i64) -> ();
            Change change_cart(ref owner: CartOwner, ref change: CartChange) -> CartAnswer;
            Read cart(ref token: StoredToken) -> Cart;
        }
        away {}
    }

    ViewStore {
        sent {
            Read viewed(ref token: StoredToken) -> Vec<(Item, f64)>;
            Read top(by most: u32) -> Vec<(Item, f64)>;
        }
        away {
            ranks_under(&Item, u64) -> bool;
            rescale_views(Rescaling) -> RescaleResult;
        }
    }

    AnswerStore {
        sent {
            Read recall(ref cookies: CookieHash) -> Option<Bytes>;
            Change remember(ref cookies: CookieHash, opt before: Bytes, by answer: Bytes, by ttl: Duration) -> bool;
            Change void(all cookies: CookieHash, by mark: Bytes, by ttl: Duration) -> ();
        }
        away {}
    }

    RevocationStore {
        sent {
            Change mark_revoked(ref token: StoredToken, by now: f64) -> ();
            Read is_revoked(ref token: StoredToken, by now: f64) -> bool;
        }
        away {}
    }

    VisitorStore {
        sent {
            Change begin_visitor(ref token: VisitorToken, ref item: Item, by now: f64) -> ();
            Change touch_visitors_within_reach(all visits: VisitorVisit) -> Vec<Option<bool>>;
            Change change_visitor_cart(ref token: VisitorToken, by begins: TokenCreation, ref change: CartChange, by now: f64) -> CartAnswer;
            Read visitor_cart(ref token: VisitorToken) -> Cart;
            Read visitor_viewed(ref token: VisitorToken) -> Vec<(Item, f64)>;
            Change merge_visitor(ref token: VisitorToken, ref session: StoredToken, ref user: User) -> MergeResult;
            Change forget_visitor(ref token: VisitorToken) -> ();
        }
        away {
            touch_visitors(&[VisitorVisit]) -> Vec<bool>;
            evict_visitors(VisitorEviction) -> VisitorsEvicted;
        }
    }

    PageStore {
        sent {
            Change delete_pages(all keys: PageKey) -> ();
        }
        away {
            page(&PageKey) -> Option<Bytes>;
            put_page(&PageKey, Bytes, Duration, RequestFrequency) -> ();
            lease(&PageKey, u64, Duration) -> Lease;
            end_lease(&PageKey, u64, bool) -> ();
        }
    }

    PurgeStore {
        sent {
            Change purge(by known: PurgePosition, all marks: u32) -> Option<PurgePosition>;
            Read news_since(by process_id: u64, by known: PurgePosition) -> StoreNews;
            Read is_seen(by purge: Generation) -> bool;
            Change leave(by process_id: u64) -> ();
        }
        away {}
    }

    RowStore {
        sent {
            Change outdate_row(ref row: Row, by now: f64) -> ();
            Read row(ref row: Row) -> Option<StoredRow>;
        }
        away {
            schedule_row(&Row, f64, f64) -> ();
            schedule_until(&[Row], RowTerm) -> usize;
            drop_rows(f64, usize) -> usize;
            make_due(&[Row], f64) -> usize;
            claim_rows(f64, usize, f64) -> ClaimResult;
            put_row(&RowClaim, Bytes, f64, f64) -> bool;
            postpone_row(&RowClaim, f64) -> bool;
            rows(usize) -> Vec<ScheduledRow>;
        }
    }
}

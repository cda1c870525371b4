//! The calls that do not travel: those of tasks and operators, which the other process has.

use std::time::Duration;

use anteroom_http::ident::{PageKey, StoredToken, User};
use anteroom_tls::{TicketKey, TicketKeyOffer};
use bytes::Bytes;

use super::RemoteStore;
use crate::bypass::BypassChange;
use crate::transfer::{
    SharedKind, SharedRecord, StoreCounts, TransferCursor, TransferPage, TransferRecord,
    TransferStore,
};
use crate::{
    Bookmark, BypassStore, CertificateStore, Cursor, DeliveryFailure, EventStore, Eviction,
    EvictionResult, ExpiryAction, ExpiryStore, FleetRegister, FleetStore, HotPageStore, IdleRange,
    IdleStep, LeaseStore, Outbox, OverloadStore, Session, SessionListing, StoreError,
    StoredBypasses, TaskLease, TicketKeyStore, WaitingEvent, WalkStep,
};

macro_rules! away {
    ($($store:ident { $($call:ident($($unused:ty),*) -> $answer:ty;)* })*) => {
        $(impl $store for RemoteStore {
            $(async fn $call(&self, $(_: $unused),*) -> Result<$answer, StoreError> {
                Err(StoreError::Away)
            })*
        })*
    };
}

away! {
    ExpiryStore {
        evict_oldest(Eviction) -> usize;
        evict_expiring(Eviction, &Cursor, &ExpiryAction) -> EvictionResult;
        correct_times(f64, u32) -> usize;
        outbox() -> Outbox;
        clear_outbox(&Outbox) -> bool;
    }

    LeaseStore {
        take_lease(TaskLease, u64, Duration) -> bool;
    }

    EventStore {
        report_idle_carts(IdleRange, &ExpiryAction) -> IdleStep;
        events_waiting() -> u64;
        first_event() -> Option<WaitingEvent>;
        remove_event(&WaitingEvent) -> ();
        put_back_event(&WaitingEvent, Option<DeliveryFailure>) -> ();
    }

    SessionListing {
        session(&StoredToken) -> Option<Session>;
        sessions_of(&User) -> Vec<Session>;
        newest(Option<Bookmark>, usize) -> WalkStep<Session>;
        walk(Option<Bookmark>, &str) -> WalkStep<(StoredToken, User)>;
        forget_user(&User) -> usize;
    }

    HotPageStore {
        put_hot_pages(Bytes, Duration) -> ();
        hot_pages() -> Option<Bytes>;
        pages(&[PageKey]) -> Vec<Option<Bytes>>;
    }

    CertificateStore {
        put_sealed(&str, Bytes, Duration) -> ();
        sealed(&str) -> Option<Bytes>;
    }

    TicketKeyStore {
        exchange_ticket_keys(&[TicketKeyOffer]) -> Vec<TicketKey>;
    }

    OverloadStore {
        put_known_servers(u32, &str, Bytes, Duration) -> ();
        known_servers(u32, &str) -> Option<Bytes>;
    }

    BypassStore {
        change_bypass(&BypassChange) -> StoredBypasses;
        bypasses() -> StoredBypasses;
    }

    FleetStore {
        register_proxy(u64, &str, Duration) -> FleetRegister;
        unregister_proxy(u64) -> ();
        change_move(Option<&str>, Option<&str>, Option<Duration>) -> bool;
        move_state() -> Option<String>;
        has_other_layout() -> bool;
        other_prefixes() -> Vec<String>;
    }

    TransferStore {
        walk_tokens(Option<TransferCursor>) -> TransferPage<StoredToken>;
        tokens_seen_since(f64, Option<TransferCursor>) -> TransferPage<StoredToken>;
        export(&[StoredToken]) -> Vec<Option<TransferRecord>>;
        import(&[TransferRecord]) -> usize;
        holds(&[StoredToken]) -> Vec<bool>;
        remove(&[StoredToken], f64) -> usize;
        counts() -> StoreCounts;
        export_shared(SharedKind, Option<TransferCursor>) -> TransferPage<SharedRecord>;
        clear_shared(SharedKind) -> ();
        import_shared(&[SharedRecord]) -> usize;
        forget_purges() -> ();
        make_durable() -> ();
    }
}

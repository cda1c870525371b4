//! The plain counters.

/// Defines the counters: variant, metric name and help text.
macro_rules! counts {
    ($($variant:ident = $name:literal, $help:literal;)*) => {
        /// The plain counters, each a metric of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Count {
            $(#[doc = $help] $variant,)*
        }

        impl Count {
            /// All counters with name and help text, in order.
            pub(super) const ALL: &[(Self, &'static str, &'static str)] =
                &[$((Self::$variant, $name, $help),)*];
        }
    };
}

counts! {
    Accepted = "anteroom_connections_accepted", "Client connections accepted";
    ConnectionsRefused = "anteroom_connections_refused",
        "Client connections refused because a limit was reached";
    ConnectionsDenied = "anteroom_connections_denied",
        "Client connections refused by their address";
    ConnectionsTimedOut = "anteroom_connections_timed_out", "Client connections closed at a deadline";
    ConnectionsLaidAside = "anteroom_connections_laid_aside",
        "Idle client connections that were reduced to their sockets";
    ProxyHeadersRefused = "anteroom_proxy_headers_refused",
        "Load-balancer connections without a valid PROXY protocol header";
    TlsHandshakes = "anteroom_tls_handshakes", "TLS handshakes with clients";
    TlsHandshakesFailed = "anteroom_tls_handshakes_failed", "TLS handshakes that failed";
    ParseErrors = "anteroom_parse_errors", "Requests that the HTTP parser refused";
    StreamsStalled = "anteroom_http2_streams_stalled", "HTTP/2 responses that the client did not read";
    StreamsRefused = "anteroom_http2_streams_refused", "HTTP/2 requests refused because a limit was reached";
    BytesSent = "anteroom_sent_bytes", "Bytes of bodies sent to clients";
    OriginRequests = "anteroom_origin_requests", "Requests sent to the origin";
    OriginConnections = "anteroom_origin_connections", "Connections opened to the origin";
    OriginRetries = "anteroom_origin_retries",
        "Requests sent again on a fresh connection, because a kept one had died";
    OriginRetriesElsewhere = "anteroom_origin_retries_elsewhere",
        "Requests sent again to another server of the origin";
    OriginRefused = "anteroom_origin_refused", "Requests for which no server of the origin was free or up";
    OriginErrors = "anteroom_origin_errors", "Requests that failed at the origin";
    OriginIdleErrors = "anteroom_origin_idle_errors",
        "Idle origin connections that broke or sent data unasked";
    InterimDropped = "anteroom_interim_dropped", "Interim responses of the origin that were not passed on";
    FragmentsFilled = "anteroom_fragments_filled", "Fragments that were filled";
    FragmentsUnfilled = "anteroom_fragments_unfilled", "Fragments that failed and showed their fallback";
    Stored = "anteroom_pages_stored", "Pages stored";
    PagesWarmedAtStart = "anteroom_pages_warmed_at_start", "Pages read from the store into memory at the start";
    PageMemoryReduced = "anteroom_memory_pages_reduced",
        "Times that pages were evicted near the process's memory limit";
    RefreshesAhead = "anteroom_pages_refreshed_ahead", "Pages fetched again before they expired";
    RefreshesFailed = "anteroom_pages_refresh_failed",
        "Pages not fetched again before they expired: the app failed, or they may not be shared any more";
    RefreshesSkipped = "anteroom_pages_refresh_skipped",
        "Hits on a page due to be fetched again while the app or the queue had no room";
    PagesWarmed = "anteroom_pages_warmed", "Pages fetched again after a purge";
    PagesWarmFailed = "anteroom_pages_warm_failed",
        "Pages not fetched again after a purge: the app failed or had no room, or they may not be shared any more";
    StoreWriteErrors = "anteroom_store_write_errors", "Pages that the store refused or failed to take";
    StoreReadErrors = "anteroom_store_read_errors", "Store reads that failed or took too long";
    Visits = "anteroom_visits", "Visits recorded";
    LogIns = "anteroom_log_ins", "Sessions minted";
    LogOuts = "anteroom_log_outs", "Sessions ended by the origin";
    VerifyQuestions = "anteroom_verify_questions", "Questions to the app about the user of a session";
    VerifyUnclear = "anteroom_verify_unclear", "Questions to the app without a clear answer";
    SessionsCleaned = "anteroom_sessions_cleaned", "Sessions cleaned";
    VisitorTokens = "anteroom_visitor_tokens", "Tokens given to visitors without a login";
    VisitorTokensRefused = "anteroom_visitor_tokens_refused",
        "Visitor tokens withheld because one address had too many";
    VisitorTokensMerged = "anteroom_visitor_tokens_merged", "Visitor tokens that became part of a session";
    VisitorTokensCleaned = "anteroom_visitor_tokens_cleaned", "Visitor tokens cleaned";
    CartsHandedOn = "anteroom_carts_handed_on", "Abandoned carts handed on";
    CartsRefused = "anteroom_carts_refused", "Times that an abandoned cart could not be handed on";
    CartsLost = "anteroom_carts_lost", "Abandoned carts not handed on before their sessions had to go";
    CartEventsDelivered = "anteroom_cart_events_delivered", "Abandoned carts that the webhook accepted";
    CartEventsFailed = "anteroom_cart_events_failed", "Webhook requests for abandoned carts that failed";
    CartEventsDropped = "anteroom_cart_events_dropped",
        "Abandoned carts dropped because the webhook's queue was full";
    CartEventsGivenUp = "anteroom_cart_events_given_up",
        "Abandoned carts given up after the webhook refused them for days";
    RowsFetched = "anteroom_rows_fetched", "Rows fetched and kept";
    RowsFailed = "anteroom_rows_failed", "Rows that could not be fetched";
    RowQueries = "anteroom_rows_queries", "Queries for rows that databases were asked";
    RowQueriesFailed = "anteroom_rows_queries_failed", "Queries for rows that failed for each of their rows";
    RowNotices = "anteroom_rows_notices", "Notifications of changes that databases sent";
    RowNoticesRefused = "anteroom_rows_notices_refused", "Notifications that have no effect";
    RowsOnDemand = "anteroom_rows_on_demand", "Requests for rows that were not scheduled";
    RowsDropped = "anteroom_rows_dropped",
        "Rows fetched and not used, because their schedule changed meanwhile";
    TraceSpansExported = "anteroom_traces_exported", "Spans of traces that the receiver took";
    TraceSpansDropped = "anteroom_traces_dropped", "Spans of traces dropped because too many waited";
    TraceSpansFailed = "anteroom_traces_failed", "Spans of traces that the receiver refused";
    TaskErrors = "anteroom_task_errors", "Runs of background tasks that failed";
    TunnelsOpened = "anteroom_tunnels_opened", "Tunnels opened (WebSocket and the like)";
    TunnelsRefused = "anteroom_tunnels_refused", "Tunnels refused because a limit was reached";
    TunnelBytesReceived = "anteroom_tunnel_received_bytes", "Bytes that clients sent through tunnels";
    TunnelBytesSent = "anteroom_tunnel_sent_bytes", "Bytes sent to clients through tunnels";
}

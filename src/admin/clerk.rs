//! What the data commands ask of the running proxy: orders and answers as JSON, over HTTP.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{ACCEPT_BACK_OFF, CONNECTION_TIME, CONNECTIONS_MAX, HEAD_TIME, Socket};
use crate::clock::unix_now;
use crate::ident::Row;
use crate::row::{Names, schedule_row_cache, together};
use crate::store::{AnyStore, RowStore, StoreError};

/// The largest order, in bytes.
const ORDER_MAX: usize = 4 << 20;
/// Rows in one order, and in one listing.
const ROWS_MAX: usize = 10_000;
/// Rows scheduled side by side.
const SIDE_BY_SIDE: usize = 64;

/// Rows to schedule or to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Of which source.
    pub name: String,
    /// Their ids.
    pub rows: Vec<String>,
    /// Seconds between two refreshes; `None`: as configured.
    pub every: Option<f64>,
}

/// The rows that are scheduled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// Those that are due first in front.
    pub rows: Vec<ListedRow>,
    /// Whether there are more than are listed.
    pub more: bool,
}

/// A row that is scheduled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedRow {
    /// Its source.
    pub name: String,
    /// Its id.
    pub row: String,
    /// Seconds between two refreshes; 0 or less: about to be removed.
    pub every: f64,
    /// The Unix time at which it is due.
    pub due: f64,
    /// The Unix time of its last good fetch.
    pub refreshed: Option<f64>,
}

/// What is told where an order is not carried out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
}

/// Carries out orders.
#[derive(Debug)]
pub struct Clerk {
    /// The store.
    pub store: AnyStore,
    /// The names of rows.
    pub names: Names,
    /// The time between two refreshes of each source's rows.
    pub every: Vec<Duration>,
}

/// Serves the data commands until told to stop.
pub async fn serve_data(socket: Socket, clerk: Rc<Clerk>, stop: CancellationToken) {
    let listener = match socket.listener() {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "the socket cannot be listened on"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
            continue;
        };
        let clerk = Rc::clone(&clerk);
        tokio::task::spawn_local(async move {
            let _place = place;
            if tokio::time::timeout(CONNECTION_TIME, converse(stream, clerk)).await.is_err() {
                tracing::debug!("a data command reached its time");
            }
        });
    }
}

async fn converse(stream: UnixStream, clerk: Rc<Clerk>) {
    let service = service_fn(move |request| {
        let clerk = Rc::clone(&clerk);
        async move { Ok::<_, Infallible>(clerk.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a data command broke off");
    }
}

/// Why an order is not carried out.
type Refused = (StatusCode, String);

impl Clerk {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let done = match (head.method, head.uri.path()) {
            (Method::GET, "/rows") => self.list().await,
            (Method::POST, "/rows/schedule") => self.order(body, false).await,
            (Method::POST, "/rows/stop") => self.order(body, true).await,
            _ => Err((StatusCode::NOT_FOUND, "this proxy does not know that command".to_owned())),
        };
        match done {
            Ok(listing) => json(StatusCode::OK, &listing),
            Err((status, error)) => json(status, &Refusal { error }),
        }
    }

    async fn order(&self, body: Incoming, stops: bool) -> Result<Option<Listing>, Refused> {
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        let read = Limited::new(body, ORDER_MAX).collect().await;
        let bytes = read.map_err(|error| bad(error.to_string()))?.to_bytes();
        let order: Order =
            serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if order.rows.len() > ROWS_MAX {
            return Err(bad(format!("at most {ROWS_MAX} rows at once")));
        }
        let Some(place) = self.names.place(&order.name) else {
            return Err(bad(format!("there is no [[rows]] with the name {:?}", order.name)));
        };
        let rows = order.rows.iter().map(|id| {
            let row = self.names.row(&order.name, id);
            row.ok_or_else(|| bad(format!("{id:?} cannot be a row of {:?}", order.name)))
        });
        let rows = rows.collect::<Result<Vec<Row>, _>>()?;
        if order.every.is_some_and(|every| every <= 0.0) {
            return Err(bad("the time between two refreshes must be over 0".to_owned()));
        }
        let told = order.every.and_then(|every| Duration::try_from_secs_f64(every).ok());
        let every = told.or_else(|| self.every.get(place).copied()).filter(|_| !stops);
        let schedule =
            async |row: &Row| schedule_row_cache(&self.store, row, every, unix_now()).await;
        for some in rows.chunks(SIDE_BY_SIDE) {
            let done = together(some.iter().map(schedule).collect()).await;
            done.into_iter().collect::<Result<(), _>>().map_err(|error| refused(&error))?;
        }
        Ok(None)
    }

    async fn list(&self) -> Result<Option<Listing>, Refused> {
        let mut rows = self.store.rows(ROWS_MAX + 1).await.map_err(|error| refused(&error))?;
        let more = rows.len() > ROWS_MAX;
        rows.truncate(ROWS_MAX);
        let listed = rows.into_iter().map(|scheduled| {
            let (place, id) = self.names.split(&scheduled.row);
            ListedRow {
                name: self.names.name(place).to_owned(),
                row: id.to_owned(),
                every: scheduled.delay,
                due: scheduled.due,
                refreshed: scheduled.refreshed,
            }
        });
        Ok(Some(Listing { rows: listed.collect(), more }))
    }
}

fn refused(error: &StoreError) -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

//! The command to reload the configuration. The main loop of the process carries it out, as it does for HUP.

use ::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::reply::{AdminResponse, json, refusal};

/// The commands that wait until the main loop has time for them.
const WAITING_MAX: usize = 4;

/// The configuration in force after a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// What is warned of.
    pub warnings: Vec<String>,
}

/// What came of a reload: a report, or the problems for which the old configuration stays in force.
pub type ReloadResult = Result<ReloadReport, Vec<String>>;

/// A command to reload, and where its result is told.
#[derive(Debug)]
pub struct ReloadRequest(oneshot::Sender<ReloadResult>);

/// What the main loop is asked for, in its order.
pub type ReloadRequests = Receiver<ReloadRequest>;

/// Where the commands come in.
#[derive(Clone, Debug)]
pub struct ReloadEntrance(Sender<ReloadRequest>);

impl ReloadRequest {
    /// Tells the operator. One that has left does not hinder.
    pub fn answer(self, result: ReloadResult) {
        if self.0.send(result).is_err() {
            tracing::debug!("the result of a reload is not read");
        }
    }
}

/// An entrance for commands to reload, and what comes in.
pub(super) fn reload_entrance() -> (ReloadEntrance, ReloadRequests) {
    let (sender, requests) = channel(WAITING_MAX);
    (ReloadEntrance(sender), requests)
}

impl ReloadEntrance {
    /// Has the main loop reload the configuration, and answers with what came of it.
    pub(super) async fn answer(&self) -> AdminResponse {
        let (sender, result) = oneshot::channel();
        if self.0.try_send(ReloadRequest(sender)).is_err() {
            return refusal(
                StatusCode::CONFLICT,
                "other reloads wait, or this process is about to end",
            );
        }
        match result.await {
            Ok(Ok(report)) => json(StatusCode::OK, &report),
            Ok(Err(problems)) => {
                let why = format!("the old configuration stays in force:\n{}", problems.join("\n"));
                refusal(StatusCode::CONFLICT, why)
            }
            Err(_) => refusal(StatusCode::CONFLICT, "this process is about to end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// The answer to a command whose result is this one, or that the main loop drops.
    async fn answered(result: Option<ReloadResult>) -> (u16, String) {
        let (entrance, mut requests) = reload_entrance();
        let carry_out = async move {
            let request = requests.recv().await.unwrap();
            if let Some(result) = result {
                request.answer(result);
            }
        };
        let (response, ()) = tokio::join!(entrance.answer(), carry_out);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_command_is_answered_with_the_result_or_the_end_of_the_process() {
        let report = ReloadReport { warnings: vec!["hosts: empty".to_owned()] };
        let (status, text) = answered(Some(Ok(report))).await;
        assert_eq!((status, text.as_str()), (200, r#"{"warnings":["hosts: empty"]}"#));
        let problems = vec!["a".to_owned(), "b".to_owned()];
        let (status, text) = answered(Some(Err(problems))).await;
        assert!(status == 409 && text.contains(r"stays in force:\na\nb"), "{text}");
        let (status, text) = answered(None).await;
        assert!(status == 409 && text.contains("about to end"), "{text}");
    }

    #[tokio::test]
    async fn a_process_that_ends_takes_no_command() {
        let (entrance, mut requests) = reload_entrance();
        requests.close();
        assert_eq!(entrance.answer().await.status(), StatusCode::CONFLICT);
    }
}

//! Listeners, the admin address and sockets.

use anteroom_http::peer::Peers;

use super::{ConfigCheck, everyone};
use crate::plan::{Address, Listen, USUAL_MODE};

/// The longest path of a socket, in bytes. The system allows 107; the temporary name during creation adds
/// up to 8 for the process id.
const SOCKET_PATH_MAX: usize = 99;

impl ConfigCheck<'_> {
    pub(super) fn listeners(&mut self) {
        let listen = &self.plan.listen;
        if listen.is_empty() {
            self.problem("listen", "expected at least one [[listen]]");
        }
        for (index, one) in listen.iter().enumerate() {
            self.listener(index, one);
        }
        let admin = &self.plan.admin;
        self.socket();
        let Some(address) = admin.address else { return };
        if listen
            .iter()
            .filter_map(|one| one.address.tcp())
            .any(|other| other == address && other.port() != 0)
        {
            self.problem("admin.address", format!("{address} is already a [[listen]] address"));
        }
        let has_token = admin.token.is_some() || !admin.tokens.is_empty();
        let is_unread = ["admin.token", "admin.tokens"].iter().any(|key| self.unread(key));
        if !address.ip().is_loopback() && !has_token && !is_unread {
            let text = format!("{address} is reachable from other hosts; set token, too");
            self.problem("admin.address", text);
        }
    }

    fn listener(&mut self, index: usize, listen: &Listen) {
        let setting = format!("listen[{index}].address");
        for earlier in &self.plan.listen[..index] {
            match (&earlier.address, &listen.address) {
                // Port 0 gives a different port each time.
                (Address::Tcp(one), Address::Tcp(other))
                    if one.port() == other.port() && one.port() != 0 =>
                {
                    if one == other {
                        self.problem(
                            &setting,
                            format!("{other} is already the address of another [[listen]]"),
                        );
                    } else if earlier.address.meets(&listen.address) {
                        self.problem(&setting, format!("{one} and {other} overlap"));
                    }
                }
                (one @ Address::Unix(_), other) if one == other => {
                    self.problem(&setting, "is already the address of another [[listen]]");
                }
                (Address::Systemd(one), Address::Systemd(other))
                    if one.is_none() || one == other =>
                {
                    self.problem(&setting, "an earlier [[listen]] already uses these sockets");
                }
                _ => {}
            }
        }
        let is_unix = matches!(listen.address, Address::Unix(_));
        if let Address::Unix(path) = &listen.address
            && path.as_os_str().len() > SOCKET_PATH_MAX
        {
            let length = path.as_os_str().len();
            let text =
                format!("the path {path:?} has {length} bytes; expected at most {SOCKET_PATH_MAX}");
            self.problem(&setting, text);
        }
        if listen.mode != USUAL_MODE && !is_unix && !self.unread(&setting) {
            self.problem(
                &format!("listen[{index}].mode"),
                "needs an address that begins with \"unix:\"",
            );
        }
        let setting = format!("listen[{index}].proxy_protocol.from");
        if let Some(net) = everyone(&listen.balancers) {
            let text = format!("{net} covers every address: any client can forge its address");
            self.warning(&setting, text);
        }
        let listens_there = |peers: &Peers| match (peers, &listen.address) {
            (Peers::Network(_), Address::Tcp(_))
            | (Peers::Unix, Address::Unix(_))
            | (_, Address::Systemd(_)) => true,
            (Peers::Network(_), Address::Unix(_)) | (Peers::Unix, Address::Tcp(_)) => false,
        };
        if let Some(peers) = listen.balancers.iter().find(|peers| !listens_there(peers))
            && !self.unread(&format!("listen[{index}].address"))
        {
            let text = format!("no connection from {peers} can arrive at this address");
            self.problem(&setting, text);
        }
    }

    /// A configured socket must be possible; the default one beside the data may be missing.
    fn socket(&mut self) {
        let Some(path) = &self.plan.admin.socket else { return };
        let length = path.as_os_str().len();
        if length <= SOCKET_PATH_MAX {
            return;
        }
        let text =
            format!("the path {path:?} has {length} bytes; expected at most {SOCKET_PATH_MAX}");
        if self.places.said("admin.socket") {
            self.problem("admin.socket", text);
        } else {
            self.warning(
                "admin.socket",
                format!("{text}; set another path, otherwise there is no socket"),
            );
        }
    }

    pub(super) fn client(&mut self) {
        if let Some(net) = everyone(&self.plan.client.trusted_proxies) {
            let text = format!("{net} covers every address: any client can forge its address");
            self.warning("client.trusted_proxies", text);
        }
    }
}

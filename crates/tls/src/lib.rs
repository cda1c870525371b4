//! The cryptography of all TLS: towards visitors, origins, Redis and databases.
//!
//! It is AWS-LC, by the crate aws-lc-rs, and chosen in this place alone: what else makes a rustls configuration takes
//! [`provider`]. sqlx takes none, and makes one with the same choices for itself. The tickets by which visitors resume
//! sessions are sealed here, too. Certificates, sockets, stores and the configuration are not known here.

mod tickets;

use std::sync::{Arc, LazyLock};

use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};

pub use tickets::{
    TICKET_KEY_LEN, TICKET_PERIOD, TicketKey, TicketKeyOffer, TicketKeys, TicketSecret,
    private_ticketer, secret_ticketer,
};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    Arc::new(CryptoProvider { kx_groups: key_exchanges(), ..aws_lc_rs::default_provider() })
});

/// The key exchanges, in order of preference. The first is proof against a quantum computer that reads a recorded
/// connection years later. It is X25519 and ML-KEM-768 together, and so never weaker than X25519 alone.
///
/// As a client (of an origin, a Redis) we send keys for the first and for X25519: a server without ML-KEM answers in one
/// round trip, too. As a server rustls takes the first of the *client's* that is listed here.
fn key_exchanges() -> Vec<&'static dyn SupportedKxGroup> {
    vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1]
}

/// What every TLS configuration is made with: cipher suites, key exchanges, signatures, random numbers.
///
/// ```
/// let builder = rustls::ClientConfig::builder_with_provider(anteroom_tls::provider());
/// assert!(builder.with_safe_default_protocol_versions().is_ok());
/// ```
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}

/// Makes [`provider`] the one of libraries that ask the process for it, as the client of Redis does. To call it again
/// changes nothing.
pub fn install() {
    // An error means that a provider is installed already. Nothing else installs one.
    let _ = CryptoProvider::clone(&PROVIDER).install_default();
}

#[cfg(test)]
mod tests {
    use rcgen::CertifiedKey;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{
        ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, ServerConfig,
        ServerConnection,
    };

    use super::*;

    /// A server with a certificate, and the certificate.
    fn server(provider: Arc<CryptoProvider>) -> (Arc<ServerConfig>, CertificateDer<'static>) {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["shop.test".to_owned()]).unwrap();
        let certificate = cert.der().clone();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        config.ticketer = private_ticketer().unwrap();
        (Arc::new(config), certificate)
    }

    fn client(
        certificate: &CertificateDer<'static>,
        provider: Arc<CryptoProvider>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// What an end has that knows these key exchanges, and no others.
    fn offering(groups: &[&'static dyn SupportedKxGroup]) -> Arc<CryptoProvider> {
        Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..CryptoProvider::clone(&PROVIDER) })
    }

    /// Makes a connection between the two, and tells what they agreed on.
    fn meet(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (NamedGroup, HandshakeKind) {
        let name = ServerName::try_from("shop.test").unwrap();
        let mut near = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut far = ServerConnection::new(Arc::clone(server)).unwrap();
        // The tickets follow the handshake.
        while near.wants_write() || far.wants_write() {
            let mut sent = Vec::new();
            while near.wants_write() {
                near.write_tls(&mut sent).unwrap();
            }
            let mut unread = sent.as_slice();
            while !unread.is_empty() {
                far.read_tls(&mut unread).unwrap();
                far.process_new_packets().unwrap();
            }
            let mut answered = Vec::new();
            while far.wants_write() {
                far.write_tls(&mut answered).unwrap();
            }
            let mut unread = answered.as_slice();
            while !unread.is_empty() {
                near.read_tls(&mut unread).unwrap();
                near.process_new_packets().unwrap();
            }
        }
        assert!(!near.is_handshaking() && !far.is_handshaking());
        let group = near.negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, far.negotiated_key_exchange_group().unwrap().name());
        (group, near.handshake_kind().unwrap())
    }

    #[test]
    fn the_first_key_exchange_is_post_quantum_and_the_others_follow() {
        let names: Vec<_> = provider().kx_groups.iter().map(|group| group.name()).collect();
        let expected = [
            NamedGroup::X25519MLKEM768,
            NamedGroup::X25519,
            NamedGroup::secp256r1,
            NamedGroup::secp384r1,
        ];
        assert_eq!(names, expected);
        // What sqlx makes for itself.
        let of_crate: Vec<_> =
            aws_lc_rs::default_provider().kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(of_crate, expected);
    }

    #[test]
    fn both_ends_of_ours_agree_on_the_first_also_when_they_resume() {
        let (server, certificate) = server(provider());
        let client = Arc::new(client(&certificate, provider()));
        let first = meet(&client, &server);
        assert_eq!(first, (NamedGroup::X25519MLKEM768, HandshakeKind::Full));
        let again = meet(&client, &server);
        assert_eq!(again, (NamedGroup::X25519MLKEM768, HandshakeKind::Resumed));
    }

    #[test]
    fn a_client_without_it_gets_what_it_has_in_one_round_trip() {
        let (server, certificate) = server(provider());
        for group in [kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1] {
            let client = Arc::new(client(&certificate, offering(&[group])));
            assert_eq!(meet(&client, &server), (group.name(), HandshakeKind::Full));
        }
    }

    #[test]
    fn the_order_of_the_client_decides() {
        let (server, certificate) = server(provider());
        let groups = [kx_group::X25519, kx_group::X25519MLKEM768];
        let client = Arc::new(client(&certificate, offering(&groups)));
        assert_eq!(meet(&client, &server).0, NamedGroup::X25519);
    }

    #[test]
    fn a_server_without_it_needs_no_second_round_trip() {
        let (server, certificate) = server(offering(&[kx_group::X25519]));
        let client = Arc::new(client(&certificate, provider()));
        assert_eq!(meet(&client, &server), (NamedGroup::X25519, HandshakeKind::Full));
    }
}

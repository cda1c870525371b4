//! The address of a Redis, of a Cluster, or of the Sentinels that watch a Redis.

use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use super::topology::ServerAddress;
use crate::OpenError;

/// The port of a Sentinel.
const SENTINEL_PORT: u16 = 26_379;

/// What an address names.
#[derive(Clone, Debug)]
pub(super) struct RedisUrl {
    pub(super) servers: Servers,
    /// How to log in to a server, and one of the servers.
    pub(super) login: ConnectionInfo,
}

/// How the servers are found.
#[derive(Clone, Debug)]
pub(super) enum Servers {
    /// The one that is named.
    One,
    /// These are some nodes of a Cluster.
    Cluster(Vec<ServerAddress>),
    /// These Sentinels know the primary of this name.
    Sentinel {
        sentinels: Vec<ServerAddress>,
        master: String,
        /// The login at the Sentinels.
        login: RedisConnectionInfo,
    },
}

impl RedisUrl {
    /// Reads `redis://`, `rediss://`, `redis+unix:`, and with `redis+` or `rediss+` before it `cluster://a,b` or
    /// `sentinel://a,b/master`.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        if url.starts_with("rediss") || url.starts_with("valkeys:") {
            // The library asks the process for it.
            anteroom_tls::install();
        }
        let kinds = [("redis+", "redis://"), ("rediss+", "rediss://")];
        for (head, scheme) in kinds {
            let Some(rest) = url.strip_prefix(head) else { continue };
            if let Some(rest) = rest.strip_prefix("cluster://") {
                return cluster(scheme, &Parts::of(rest));
            }
            if let Some(rest) = rest.strip_prefix("sentinel://") {
                return sentinel(scheme, &Parts::of(rest));
            }
        }
        Ok(Self { servers: Servers::One, login: login(url)? })
    }
}

/// `[user:password@]host[:port],…[/path][?query]`
struct Parts<'a> {
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Self {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) =
            authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
        Self { user, hosts: hosts.split(',').collect(), path, query }
    }

    /// The login at each host, as if it were the only one.
    fn logins(
        &self,
        scheme: &str,
        path: &str,
        query: &str,
    ) -> Result<Vec<ConnectionInfo>, OpenError> {
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let url = |host: &&str| login(&format!("{scheme}{}{host}/{path}{query}", self.user));
        self.hosts.iter().map(url).collect()
    }
}

fn login(url: &str) -> Result<ConnectionInfo, OpenError> {
    url.into_connection_info().map_err(|error| OpenError::BadUrl(error.into()))
}

fn bad(what: &str) -> OpenError {
    OpenError::BadUrl(what.into())
}

fn addresses(logins: &[ConnectionInfo]) -> Vec<ServerAddress> {
    logins.iter().filter_map(|login| ServerAddress::of(login.addr())).collect()
}

fn cluster(scheme: &str, parts: &Parts<'_>) -> Result<RedisUrl, OpenError> {
    if !matches!(parts.path, "" | "0") {
        return Err(bad("a Cluster has one database, 0: leave the path out"));
    }
    let logins = parts.logins(scheme, "", parts.query)?;
    let servers = Servers::Cluster(addresses(&logins));
    let login = logins.into_iter().next().ok_or_else(|| bad("names no node"))?;
    Ok(RedisUrl { servers, login })
}

fn sentinel(scheme: &str, parts: &Parts<'_>) -> Result<RedisUrl, OpenError> {
    let (master, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if master.is_empty() {
        return Err(bad("names no primary: redis+sentinel://a,b,c/mymaster"));
    }
    let mut at_sentinels = RedisConnectionInfo::default();
    let mut others = Vec::new();
    for pair in parts.query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = || percent_decode_str(value).decode_utf8_lossy().into_owned();
        match name {
            "sentinel_user" => at_sentinels = at_sentinels.set_username(value()),
            "sentinel_password" => at_sentinels = at_sentinels.set_password(value()),
            _ => others.push(pair),
        }
    }
    let logins = parts.logins(scheme, database, &others.join("&"))?;
    let has_port =
        |host: &&str| host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let mut sentinels = addresses(&logins);
    for (sentinel, host) in sentinels.iter_mut().zip(&parts.hosts) {
        if !has_port(host) {
            sentinel.port = SENTINEL_PORT;
        }
    }
    let login = logins.into_iter().next().ok_or_else(|| bad("names no Sentinel"))?;
    let master = percent_decode_str(master).decode_utf8_lossy().into_owned();
    Ok(RedisUrl { servers: Servers::Sentinel { sentinels, master, login: at_sentinels }, login })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(addresses: &[ServerAddress]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cluster_has_some_nodes_and_one_login() {
        let url = RedisUrl::parse("redis+cluster://ann:p%40w@a:7000,b,[::1]:7001?protocol=resp3");
        let RedisUrl { servers: Servers::Cluster(nodes), login } = url.unwrap() else { panic!() };
        assert_eq!(named(&nodes), ["a:7000", "b:6379", "[::1]:7001"]);
        assert_eq!(login.redis_settings().username(), Some("ann"));
        assert_eq!(login.redis_settings().password(), Some("p@w"));
        let tls = RedisUrl::parse("rediss+cluster://a").unwrap();
        assert!(matches!(tls.login.addr(), redis::ConnectionAddr::TcpTls { .. }));
        for wrong in ["redis+cluster://a/1", "redis+cluster://", "redis+cluster://a:x"] {
            assert!(RedisUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sentinels_have_a_port_and_a_login_of_their_own() {
        let url = "redis+sentinel://:pw@a,b:5000/shop/3?sentinel_user=s&sentinel_password=q%2F";
        let RedisUrl { servers, login } = RedisUrl::parse(url).unwrap();
        let Servers::Sentinel { sentinels, master, login: at_sentinels } = servers else {
            panic!()
        };
        assert_eq!(
            (named(&sentinels), master.as_str()),
            (vec!["a:26379".into(), "b:5000".into()], "shop")
        );
        assert_eq!(
            (login.redis_settings().db(), login.redis_settings().password()),
            (3, Some("pw"))
        );
        assert_eq!((at_sentinels.username(), at_sentinels.password()), (Some("s"), Some("q/")));
        assert!(RedisUrl::parse("redis+sentinel://a,b").is_err());
    }

    #[test]
    fn other_addresses_are_one_server() {
        for url in ["redis://a", "rediss://:pw@a:1/2", "redis+unix:/run/redis.sock"] {
            assert!(matches!(RedisUrl::parse(url).unwrap().servers, Servers::One), "{url}");
        }
    }
}

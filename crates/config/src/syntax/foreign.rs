//! Recognises the configuration of another program, which was given by mistake.

/// A language that Anteroom does not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Language {
    /// What it is, with its article.
    pub(super) name: &'static str,
    /// The page that says what to write instead.
    pub(super) page: &'static str,
}

const OTHERS: &str = "docs/start/in-front-of-your-app.md";
const CACHES: &str = "docs/guides/from-nginx-or-varnish.md";
const NGINX: Language = Language { name: "an nginx configuration", page: CACHES };
const VCL: Language = Language { name: "a VCL of Varnish", page: CACHES };
const CADDY: Language = Language { name: "a Caddyfile", page: OTHERS };
const HAPROXY: Language = Language { name: "an HAProxy configuration", page: OTHERS };
const APACHE: Language = Language { name: "an Apache configuration", page: OTHERS };
const YAML: Language = Language { name: "YAML", page: OTHERS };
const JSON: Language = Language { name: "JSON", page: OTHERS };

/// First words of lines that end in `{` or `;` in nginx. Others are known by how they begin.
const OF_NGINX: [&str; 27] = [
    "http",
    "events",
    "server",
    "stream",
    "mail",
    "location",
    "upstream",
    "user",
    "daemon",
    "master_process",
    "pid",
    "env",
    "lock_file",
    "error_log",
    "access_log",
    "include",
    "load_module",
    "pcre_jit",
    "thread_pool",
    "listen",
    "server_name",
    "proxy_pass",
    "fastcgi_pass",
    "proxy_cache_path",
    "root",
    "map",
    "gzip",
];
/// How the names of nginx's directives begin.
const BEGINS_OF_NGINX: [&str; 5] = ["proxy_", "fastcgi_", "ssl_", "client_", "worker_"];
const OF_HAPROXY: [&str; 4] = ["global", "defaults", "frontend", "backend"];
const OF_APACHE: [&str; 5] =
    ["ServerName", "ServerRoot", "ProxyPass", "DocumentRoot", "LoadModule"];
const OF_CADDY: [&str; 4] = ["reverse_proxy", "php_fastcgi", "file_server", "handle_path"];

/// The language of a file, by its first line that is not TOML and by the whole text.
pub(super) fn language(line: &str, text: &str) -> Option<Language> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let has_brace = line.ends_with('{');
    let begins = |listed: &[&str]| {
        text.lines().any(|line| line.split_whitespace().next().is_some_and(|w| listed.contains(&w)))
    };
    // `include = "conf.d/*.toml";` is TOML with a slip. In nginx only `location = /path {` has such a sign.
    let is_setting = first != "location" && line.split_whitespace().nth(1) == Some("=");
    let is_vcl = first == "vcl" || text.contains("sub vcl_") || first == "backend" && has_brace;
    if is_vcl {
        Some(VCL)
    } else if is_of_nginx(first) && !is_setting && ends_as_in_nginx(line) {
        Some(NGINX)
    } else if OF_HAPROXY.contains(&first) && words.count() <= 1 && !line.contains(['=', ';', '{']) {
        Some(HAPROXY)
    } else if first.starts_with("<VirtualHost") || OF_APACHE.contains(&first) {
        Some(APACHE)
    } else if begins(&OF_CADDY) {
        Some(CADDY)
    } else if first == "{" || first.starts_with("{\"") {
        Some(JSON)
    } else if first == "---" || line.ends_with(':') && !line.contains('=') {
        Some(YAML)
    } else {
        None
    }
}

fn is_of_nginx(word: &str) -> bool {
    OF_NGINX.contains(&word) || BEGINS_OF_NGINX.iter().any(|begin| word.starts_with(begin))
}

/// Whether a line ends a directive of nginx, or begins a block. A comment may follow.
fn ends_as_in_nginx(line: &str) -> bool {
    let directive = line.split_once(" #").map_or(line, |(directive, _)| directive);
    directive.trim_end().ends_with(['{', ';', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_program_is_recognised_by_its_first_line() {
        for (text, expected) in [
            ("server {\n listen 80;\n}\n", Some(NGINX)),
            ("user www-data;\nworker_processes auto;\n", Some(NGINX)),
            ("daemon off;\nuser www-data;\n", Some(NGINX)),
            ("daemon off; # in a container\nhttp {\n}\n", Some(NGINX)),
            ("master_process off;\n", Some(NGINX)),
            ("worker_processes auto;\npid /run/nginx.pid;\n", Some(NGINX)),
            ("worker_rlimit_nofile 65535;\n", Some(NGINX)),
            ("pid /run/nginx.pid;\n", Some(NGINX)),
            ("error_log /var/log/nginx/error.log warn;\n", Some(NGINX)),
            ("include /etc/nginx/modules-enabled/*.conf;\n", Some(NGINX)),
            ("load_module modules/ngx_http_brotli_filter_module.so;\n", Some(NGINX)),
            ("location = / {\n}\n", Some(NGINX)),
            ("location / { proxy_pass http://a; }\n", Some(NGINX)),
            ("proxy_cache_path /var/cache keys_zone=a:10m;\n", Some(NGINX)),
            ("ssl_certificate a.pem;\n", Some(NGINX)),
            ("map $a $b {\n default 1;\n}\n", Some(NGINX)),
            ("proxy_pass = \"http://a\"\n", None),
            ("include = \"conf.d/*.toml\";\n", None),
            ("include conf.d\n", None),
            ("vcl 4.1;\n", Some(VCL)),
            ("backend default {\n .host = \"a\";\n}\n", Some(VCL)),
            ("include \"devices.vcl\";\nsub vcl_recv {\n}\n", Some(VCL)),
            ("import std;\nsub vcl_recv {\n}\n", Some(VCL)),
            ("shop.example {\n  reverse_proxy a:1\n}\n", Some(CADDY)),
            ("{\n  email a@shop.example\n}\nshop.example {\n  file_server\n}\n", Some(CADDY)),
            ("global\n  maxconn 100\n", Some(HAPROXY)),
            ("frontend web\n  bind *:80\n", Some(HAPROXY)),
            ("<VirtualHost *:80>\n</VirtualHost>\n", Some(APACHE)),
            ("{\n  \"listen\": 80\n}\n", Some(JSON)),
            ("http:\n  routers:\n", Some(YAML)),
            ("---\norigin: a\n", Some(YAML)),
            ("origin: http://a:1\n", None),
            ("listen 80\n", None),
            ("url = http://a\n", None),
            ("x\n", None),
            ("\n", None),
        ] {
            let first = text.lines().next().unwrap();
            assert_eq!(language(first, text), expected, "{text}");
        }
    }
}

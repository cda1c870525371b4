//! The guide to live numbers on cached pages: its files, as they stand there, and what it promises of them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::client::Ask;
use crate::support::database::PostgresServer;
use crate::support::proxy::anteroom;
use crate::support::redis::RedisServer;
use crate::support::{free_port, python, wait_until};

/// The shop on a Redis, in which another program may write rows, too.
const WITH_REDIS: &str = r##"
listen = [{ address = "127.0.0.1:8080" }]
origin.url = "http://127.0.0.1:8000"
store.url = "redis://127.0.0.1:6379"

[[rows]]
name = "inventory"
every = "5s"
path = "/api/inventory/{row}"

[[route]]
match.path = "/item/{item}"
share = "everyone"
fragments = [{ selector = "#stock", fill = "row:inventory:{item}", template = "{qty} in stock" }]
"##;

/// A process of the guide; it is killed on drop.
struct GuideProcess(Child);

impl GuideProcess {
    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap())
    }
}

impl Drop for GuideProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The blocks of the guide that are in this language, below the heading of the example.
fn blocks(kind: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/rows.md");
    let page = fs::read_to_string(path).unwrap();
    let (_, page) = page.split_once("\n## Live numbers on cached pages\n").unwrap();
    let inside = page.split("```").skip(1).step_by(2);
    inside.filter_map(|block| block.strip_prefix(&format!("{kind}\n")).map(str::to_owned)).collect()
}

/// The app and the proxy of the guide, in a folder of their own.
struct Shop {
    web: SocketAddr,
    _folder: TempDir,
    _app: GuideProcess,
    _proxy: GuideProcess,
}

impl Shop {
    /// Starts both, with `settings`, in which `url` stands for `said`.
    fn start(settings: &str, said: &str, url: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let [web, app] =
            [free_port(), free_port()].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let script = blocks("python").remove(0).replace("8000", &app.port().to_string());
        fs::write(folder.path().join("shop.py"), script).unwrap();
        assert!(settings.contains(said), "{settings}");
        let settings = settings
            .replace(said, url)
            .replace("127.0.0.1:8080", &web.to_string())
            .replace("127.0.0.1:8000", &app.to_string());
        fs::write(folder.path().join("proxy.toml"), settings).unwrap();
        let run =
            GuideProcess::start(Command::new(python()).arg("shop.py").current_dir(folder.path()));
        wait_until("the app listens", || TcpStream::connect(app).is_ok());
        let proxy = GuideProcess::start(
            anteroom()
                .args(["run", "--config", "proxy.toml"])
                .env("ANTEROOM__CACHE__AUDIT", "off")
                .current_dir(folder.path()),
        );
        wait_until("the proxy listens", || TcpStream::connect(web).is_ok());
        Self { web, _folder: folder, _app: run, _proxy: proxy }
    }

    fn shows(&self, path: &str, page: &str) -> bool {
        Ask::new(self.web, "GET", path).send().text() == page
    }
}

#[test]
fn the_guide_holds_with_postgresql() {
    let server = PostgresServer::start(&blocks("sql").concat());
    let said = "postgres:///shop?host=/var/run/postgresql";
    let shop = Shop::start(&blocks("toml")[0], said, &server.url());
    let lamp = |qty| format!("<h1>Lamp</h1> <p id='stock'>{qty} in stock</p>\n");
    wait_until("the row is shown", || shop.shows("/item/7", &lamp(12)));
    server.run("update items set qty = 11 where id = 7");
    wait_until("the change is shown", || shop.shows("/item/7", &lamp(11)));
    let list = "<li>Lamp: <b data-stock='7'>11</b></li>\n<li>Mug: <b data-stock='8'>3</b></li>\n";
    wait_until("the list shows both", || shop.shows("/all", list));
    let answer = Ask::new(shop.web, "GET", "/item/7").send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
}

#[test]
fn a_row_that_another_program_wrote_in_redis_is_shown() {
    let redis = RedisServer::start();
    let said = "redis://127.0.0.1:6379";
    let shop = Shop::start(WITH_REDIS, said, &redis.url());
    assert!(shop.shows("/item/9", "<h1>None</h1> <p id='stock'>Ask us for the stock.</p>\n"));
    redis.command::<()>(&["SET", "inv:9", "{\"qty\":4}"]);
    wait_until("the row is shown", || {
        shop.shows("/item/9", "<h1>None</h1> <p id='stock'>4 in stock</p>\n")
    });
}

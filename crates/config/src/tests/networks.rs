//! Lists of networks in files.

use std::fs;

use super::{ORIGIN, file, problems, read};

#[test]
fn a_list_of_networks_may_be_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let cdn = folder.path().join("cdn.txt");
    fs::write(&cdn, "# A CDN\n192.0.2.0/24\n\n 2001:db8::1 # one\r\n").unwrap();
    let list = format!("[\"10.0.0.0/8\", \"file:{}\"]", cdn.display());
    let text = format!(
        "{ORIGIN}[client]\ntrusted_proxies = {list}\nallow = {list}\ndeny = {list}\n\
         [purge]\npurge_from = {list}\n[limits]\nrequests_exempt = {list}\n\
         [[route]]\nmatch = \"/a\"\nallow_from = {list}\n"
    );
    let plan = read(&file(&text));
    let expected = ["10.0.0.0/8", "192.0.2.0/24", "2001:db8::1/128"];
    let client = &plan.client;
    for networks in [
        &client.allow,
        &client.deny,
        &plan.purge.purge_from,
        &plan.limits.requests_exempt,
        &plan.routes[0].allow_from,
    ] {
        assert_eq!(networks.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
    let trusted: Vec<String> = client.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(trusted, expected);
}

#[test]
fn what_is_wrong_in_a_list_is_told_with_its_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cdn.txt");
    let shown = path.display().to_string();
    let told = |list: Option<&str>| {
        if let Some(list) = list {
            fs::write(&path, list).unwrap();
        }
        problems(&file(&format!("{ORIGIN}[client]\ndeny = \"file:{shown}\"\n")))
    };
    let at = "proxy.toml:4: [client] deny:";
    assert_eq!(
        told(None),
        [format!("{at} cannot read the file {shown}: No such file or directory (os error 2)")]
    );
    // A download that failed must not open what the list closes.
    let empty = format!("{at} the file {shown} is empty; expected one network a line");
    assert_eq!(told(Some("# nothing\n")), [empty]);
    assert_eq!(
        told(Some("192.0.2.1\n<html>\n<body>\n")),
        [format!(
            "{shown}:2: [client] deny: found \"<html>\"; expected an address or a network such as \
             \"10.0.0.0/8\", one a line"
        )]
    );
    assert_eq!(
        told(Some(&"192.0.2.1\n".repeat(10_001))),
        [format!("{at} found more networks; expected at most 10000")]
    );
    assert!(
        read(&file(&format!("{ORIGIN}[client]\ndeny = [\"192.0.2.1\"]"))).client.deny.len() == 1
    );
    let text = format!("{ORIGIN}[client]\ndeny = [\"there\"]");
    let expected = "proxy.toml:4: [client] deny: found \"there\"; expected an address or a network such \
                    as \"10.0.0.0/8\", or \"file:\" and the path of a list";
    assert_eq!(problems(&file(&text)), [expected]);
}

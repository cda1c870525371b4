//! The configuration: any text.

use std::path::PathBuf;

use anteroom::config::{ConfigSources, Plan, SettingLocation, print};

/// Whatever the file holds, each problem is told on a line of its own with its place in the file; and what
/// is printed of a plan reads back as the same.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The fuzzer does not wait for files that secrets would be read from.
    if text.contains("/dev/") || text.contains("/proc/") {
        return;
    }
    match read(text) {
        Ok(plan) => {
            let printed = print(&plan);
            // A password is put back by hand.
            if printed.contains("(hidden)") {
                return;
            }
            let again = read(&printed).unwrap_or_else(|problems| panic!("{problems:?}\n{printed}"));
            assert_eq!(again, plan, "{printed}");
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                match &problem.location {
                    // The end of the last line may begin one more.
                    SettingLocation::Line(_, line) => {
                        assert!((1..=text.lines().count() + 1).contains(line))
                    }
                    SettingLocation::File(_) => {}
                    other => panic!("{other:?}: {problem}"),
                }
                assert!(!problem.to_string().contains('\n'), "{problem}");
            }
        }
    }
}

fn read(text: &str) -> Result<Plan, Vec<anteroom::config::Problem>> {
    let file = Some((PathBuf::from("proxy.toml"), text.to_owned()));
    Plan::read(&ConfigSources { file, ..ConfigSources::default() }).map(|(plan, _)| plan)
}

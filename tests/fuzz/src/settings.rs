//! The configuration: any text.

use std::path::{Path, PathBuf};

use anteroom_config::{ConfigSources, Plan, SettingLocation, print};

/// The name of the file.
const FILE: &str = "proxy.toml";

/// Whatever the file holds, each problem is told on a line of its own with its place in the file; and what
/// is printed of a plan reads back as the same.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The fuzzer does not wait for files that secrets would be read from, and does not search folders for files
    // to include.
    if ["/dev/", "/proc/", "include"].iter().any(|word| text.contains(word)) {
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
                    SettingLocation::Line(path, line) if **path == *Path::new(FILE) => {
                        assert!((1..=text.lines().count() + 1).contains(line))
                    }
                    // The second is a line of a list that the file names.
                    SettingLocation::File(_) | SettingLocation::Line(..) => {}
                    other => panic!("{other:?}: {problem}"),
                }
                assert!(!problem.to_string().contains('\n'), "{problem}");
            }
        }
    }
}

fn read(text: &str) -> Result<Plan, Vec<anteroom_config::Problem>> {
    let file = Some((PathBuf::from(FILE), text.to_owned()));
    Plan::read(&ConfigSources { file, ..ConfigSources::default() }).map(|(plan, _)| plan)
}

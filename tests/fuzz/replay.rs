//! Each fuzz target with its seeds, and with changes of them that chance makes by one seed: the same in each run, so
//! that what stops a change is its own. `ANTEROOM_FUZZ_SEED` makes others.
//!
//! A line of `seeds/` is an input, written as for printf's `%b`; `words` has what is put into inputs. What follows the
//! branches that an input reaches is `run`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "in a test a panic is the way to fail, and the input is to be seen"
)]

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use anteroom_fuzz::TARGETS;
use fastrand::Rng;

/// Changed inputs of a target.
const INPUTS: usize = 5_000;
/// The same for the targets that open connections.
const INPUTS_ON_SOCKETS: usize = 300;
const ON_SOCKETS: [&str; 3] = ["exchange", "proxy_protocol", "request_head"];
/// The most bytes of an input.
const LENGTH_MAX: usize = 4_096;

/// The input that is tried.
static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

macro_rules! replay {
    ($($name:ident),+ $(,)?) => {
        $(#[test] fn $name() { play(stringify!($name)); })+

        #[test]
        fn every_target_is_replayed() {
            assert_eq!([$(stringify!($name)),+], TARGETS.map(|(name, _)| name));
        }
    };
}

replay!(
    accept_encoding,
    cache_control,
    cdn_cache_control,
    conditions,
    config,
    content_type,
    cookies,
    dates,
    entries,
    exchange,
    freshness,
    guard,
    places,
    proxy_protocol,
    ranges,
    request_head,
    tags,
    vary,
    verdict,
);

fn play(name: &str) {
    abort_on_panic();
    let (_, target) = TARGETS.into_iter().find(|(one, _)| *one == name).unwrap();
    let try_input = |input: &[u8]| {
        input.clone_into(&mut INPUT.lock().unwrap());
        target(input);
    };
    let seeds = lines(&format!("seeds/{name}"));
    seeds.iter().for_each(|seed| try_input(seed));
    let words = words();
    let seed = std::env::var("ANTEROOM_FUZZ_SEED").map_or(7, |seed| seed.parse().unwrap());
    let mut chance = Rng::with_seed(seed);
    let count = if ON_SOCKETS.contains(&name) { INPUTS_ON_SOCKETS } else { INPUTS };
    for _ in 0..count {
        let mut input = chance.choice(&seeds).cloned().unwrap_or_default();
        for _ in 0..chance.usize(1..6) {
            change(&mut input, &mut chance, &seeds, &words);
        }
        input.truncate(LENGTH_MAX);
        try_input(&input);
    }
}

/// A panic on any thread, as that of the origin, ends the process, and its input is told.
fn abort_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        let input = INPUT.try_lock().map(|input| input.escape_ascii().to_string());
        eprintln!("the input, as a line of seeds/: {}", input.unwrap_or_default());
        std::process::abort();
    }));
}

/// Changes an input in one of the ways in which fuzzers do.
fn change(input: &mut Vec<u8>, chance: &mut Rng, seeds: &[Vec<u8>], words: &[Vec<u8>]) {
    let at = chance.usize(..=input.len());
    let end = chance.usize(at..=input.len()).min(at + 64);
    match chance.u8(..7) {
        0 if at < input.len() => input[at] = chance.u8(..),
        1 if at < input.len() => input[at] ^= 1 << chance.u8(..8),
        2 => drop(input.drain(at..end)),
        3 => drop(input.splice(at..at, input[at..end].to_vec())),
        4 => drop(input.splice(at..end, chance.choice(seeds).cloned().unwrap_or_default())),
        5 => input.insert(at, chance.u8(..)),
        _ => drop(input.splice(at..at, chance.choice(words).cloned().unwrap_or_default())),
    }
}

/// The inputs of a file of seeds.
fn lines(file: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap().lines().map(|line| unescaped(line.as_bytes())).collect()
}

/// The words of a dictionary of libFuzzer, each in quotes.
fn words() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("words")).unwrap();
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(|word| unescaped(word.as_bytes())).collect()
}

/// What printf's `%b` makes of a line, as far as the seeds use it.
fn unescaped(line: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        let (true, Some((&kind, behind))) = (first == b'\\', rest.split_first()) else {
            bytes.push(first);
            continue;
        };
        rest = behind;
        bytes.push(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => {
                rest = &line[line.len() - rest.len() - 1..];
                number(&mut rest, 8, 4)
            }
            b'x' => number(&mut rest, 16, 2),
            other => other,
        });
    }
    bytes
}

/// The byte that these digits, at most so many, write; `rest` is what follows them.
fn number(rest: &mut &[u8], base: u32, most: usize) -> u8 {
    let digits = rest.iter().take(most).take_while(|byte| char::from(**byte).is_digit(base));
    let (text, behind) = rest.split_at(digits.count());
    *rest = behind;
    let text = std::str::from_utf8(text).unwrap();
    u8::from_str_radix(text, base).unwrap_or_else(|_| panic!("\\{text} is no byte"))
}

#[test]
fn a_line_of_seeds_is_read_as_printf_does() {
    let line = br#"\0\0012\x0A\n\r\t\\a"\""#;
    assert_eq!(unescaped(line), b"\x00\n\n\n\r\t\\a\"\"");
}

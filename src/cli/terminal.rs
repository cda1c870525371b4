//! The terminal, while a command draws on all of it.

use std::io::{self, Write as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Another screen, without cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor, and the screen of before.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The size where the terminal tells none.
const USUAL: (usize, usize) = (80, 24);

/// A terminal that shows one screen and passes on each key. Dropped, it is as it was before; so it is when a thread
/// panics, before the panic is told.
pub(crate) struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal of standard input and output.
    pub(crate) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        let screen = Self { before: before.clone() };
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&before);
            told(panic);
        }));
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and lines.
    #[expect(clippy::unused_self, reason = "a screen that is open has a size")]
    pub(crate) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => USUAL,
        }
    }

    /// Shows lines, and nothing else. They must fit.
    #[expect(clippy::unused_self, reason = "only a screen that is open is drawn on")]
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        write(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

/// Makes the terminal what it was. A terminal that is gone is no error.
fn restore(before: &Termios) {
    let _gone = write(LEAVE);
    let _gone = tcsetattr(io::stdin(), OptionalActions::Now, before);
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

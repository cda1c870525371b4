//! Forms as browsers send them (`application/x-www-form-urlencoded`).

/// The value of a field; `None`: there is no such field, or more than one.
#[must_use]
pub fn form_value(body: &[u8], field: &str) -> Option<Vec<u8>> {
    let decoded = |text: &[u8]| -> Vec<u8> {
        let spaced: Vec<u8> =
            text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        percent_encoding::percent_decode(&spaced).collect()
    };
    let mut values = body.split(|&byte| byte == b'&').filter_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (decoded(&pair[..at]) == field.as_bytes()).then(|| decoded(&pair[at + 1..]))
    });
    // With two fields of one name, an app may take either.
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_form_is_read_as_browsers_write_it() {
        let body = b"sectok=&u=Al%C3%AFce+B&p=secret&p=other";
        assert_eq!(form_value(body, "u").unwrap(), "Al\u{ef}ce B".as_bytes());
        assert_eq!(form_value(body, "sectok").unwrap(), b"");
        assert_eq!(form_value(body, "x"), None);
        assert_eq!(form_value(body, "p"), None, "it came twice");
    }
}

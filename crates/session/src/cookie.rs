//! The session cookie that the proxy sets: attributes, and how it is cleared.

use std::time::Duration;

use ::http::HeaderValue;
use anteroom_http::ident::Token;

use anteroom_policy::cookie::{SameSite, Secure};

/// The cookie with the proxy's own tokens.
#[derive(Clone, Debug)]
pub struct SessionCookie {
    /// Its name.
    pub name: String,
    /// `SameSite`.
    pub same_site: SameSite,
    /// `Secure`.
    pub secure: Secure,
    /// How long the browser keeps it; `None`: until the browser is closed.
    pub lifetime: Option<Duration>,
}

impl SessionCookie {
    /// The `Set-Cookie` value that sets `token`, for a request over https or http. `None` if the
    /// name is not a valid cookie name.
    #[must_use]
    pub fn set(&self, token: &Token, https: bool) -> Option<HeaderValue> {
        let max_age = self.lifetime.map(|time| format!("; Max-Age={}", time.as_secs()));
        let mut value = self.line(token.as_str(), &max_age.unwrap_or_default(), https)?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The `Set-Cookie` value that deletes it.
    #[must_use]
    pub fn clear(&self, https: bool) -> Option<HeaderValue> {
        self.line("", "; Max-Age=0", https)
    }

    fn line(&self, value: &str, extra: &str, https: bool) -> Option<HeaderValue> {
        let same_site = self.same_site.as_str();
        let secure = match self.secure {
            Secure::Always => true,
            Secure::Auto => https,
            Secure::Never => false,
        };
        let secure = if secure { "; Secure" } else { "" };
        let name = &self.name;
        let line = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}{secure}{extra}");
        HeaderValue::try_from(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_has_its_attributes() {
        let mut cookie = SessionCookie {
            name: "login".into(),
            same_site: SameSite::Lax,
            secure: Secure::Auto,
            lifetime: None,
        };
        let token = Token::parse(b"12345678").unwrap();
        let plain = "login=12345678; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(cookie.set(&token, false).unwrap(), plain);
        assert_eq!(cookie.set(&token, true).unwrap(), format!("{plain}; Secure").as_str());
        let cleared = "login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0";
        assert_eq!(cookie.clear(false).unwrap(), cleared);
        cookie.lifetime = Some(Duration::from_secs(86_400));
        let kept = format!("{plain}; Max-Age=86400");
        assert_eq!(cookie.set(&token, false).unwrap(), kept.as_str());
        assert_eq!(cookie.clear(false).unwrap(), cleared);
    }
}

//! The cookie that stands for the token.

use super::*;

/// Sends the token, and returns the cookie with which `host` answers.
fn login_at(served: &Served, host: &str) -> String {
    let length = TOKEN.len();
    let answer = served.ask(&format!(
        "POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{TOKEN}"
    ));
    let mut lines = answer.lines();
    let cookie = lines.find_map(|line| line.strip_prefix("Set-Cookie: "));
    let cookie = cookie.and_then(|cookie| cookie.split(';').next());
    cookie.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_cookie_outlives_a_restart_and_is_one_of_a_port() {
    let served = Served::start(Some(TOKEN));
    let cookie = login_at(&served, "127.0.0.1:9180");
    assert!(!cookie.contains(TOKEN), "{cookie}");
    let other = login_at(&served, "127.0.0.1:9181");
    let name = |cookie: &str| cookie.split('=').next().unwrap().to_owned();
    assert_ne!(name(&cookie), name(&other));
    drop(served);

    let state = |served: &Served, host: &str, cookies: &str| {
        served.ask(&format!(
            "GET /state HTTP/1.1\r\nHost: {host}\r\nCookie: {cookies}\r\n\r\n"
        ))
    };
    let again = Served::start(Some(TOKEN));
    let both = format!("{other}; {cookie}");
    expect(&state(&again, "127.0.0.1:9180", &both), 200);
    expect(&state(&again, "[::1]:9181", &both), 200);
    expect(&state(&again, "[::1]", &both), 401);
    // A new token ends what the old one has begun.
    let changed = Served::start(Some("another-token-of-many-characters"));
    expect(&state(&changed, "127.0.0.1:9180", &both), 401);
}

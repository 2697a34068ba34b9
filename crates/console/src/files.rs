//! The page: files in the program, the same for every user. They contain no data.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use access::Digest;

use crate::shared::Shared;

/// Name, content type and text of each file.
const FILES: &[(&str, &str, &str)] = &[
    (
        "index.html",
        "text/html; charset=utf-8",
        include_str!("../page/index.html"),
    ),
    (
        "app.css",
        "text/css; charset=utf-8",
        include_str!("../page/app.css"),
    ),
    (
        "app.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/app.js"),
    ),
    (
        "draw.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/draw.js"),
    ),
    (
        "views.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/views.js"),
    ),
    (
        "keys.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/keys.js"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_str!("../page/icon.svg"),
    ),
];

/// Returns whether there is a file of this name.
pub(crate) fn has(name: &str) -> bool {
    FILES.iter().any(|(known, ..)| *known == name)
}

/// `GET /`.
pub(crate) async fn index(state: State<Shared>, headers: HeaderMap) -> Response {
    file(state, Path("index.html".to_owned()), headers).await
}

/// `GET /<file>`.
pub(crate) async fn file(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let Some((_, kind, text)) = found.filter(|_| shared.settings().has_console) else {
        return (StatusCode::NOT_FOUND, "there is nothing of this name\n").into_response();
    };
    let tag = format!("\"{}\"", &Digest::of(text.as_bytes()).to_hex()[..16]);
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    let about = [
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
    ];
    if known == Some(tag.as_str()) {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    (about, [(header::CONTENT_TYPE, *kind)], *text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The design promises that a browser loads little, and that the document contains no code.
    #[test]
    fn the_page_is_small_and_has_no_inline_code() {
        let bytes: usize = FILES.iter().map(|(_, _, text)| text.len()).sum();
        assert!(bytes < 250_000, "{bytes}");
        for (name, _, text) in FILES {
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                "new Function",
            ] {
                assert!(!text.contains(bad), "{name} has {bad}");
            }
            let foreign = text.matches("https://").count() + text.matches("http://").count();
            let names = text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(foreign, names, "{name} names another host");
        }
        let document = FILES[0].2;
        assert_eq!(
            document.matches("<script").count(),
            document.matches("<script src=").count()
                + document.matches("<script type=\"module\" src=").count()
        );
        assert!(!document.contains("onclick") && !document.contains("<style"));
    }
}

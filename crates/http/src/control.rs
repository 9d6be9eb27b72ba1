//! Requests that change the configuration.

use serde::{Deserialize, Serialize};
use sluice_router::process::{EditForm, Editor};

use super::Answer;
use super::access::Admitted;
use super::request::Request;

/// The body of `/command`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commands {
    /// The commands, one per line.
    commands: String,
}

/// The answer to a change.
#[derive(Serialize)]
pub(super) struct Changed<R> {
    pub(super) reply: R,
    /// The change that would be taken back next.
    pub(super) undo: Option<String>,
}

/// The answer to `/control`.
#[derive(Serialize)]
struct Allowed {
    is_allowed: bool,
    #[serde(flatten)]
    form: EditForm,
}

/// Returns what the form shows; a page that may change nothing has none.
pub(super) fn form(editor: Option<&Editor>) -> Answer {
    let form = editor.map_or_else(|| Ok(EditForm::default()), Editor::form);
    match form {
        Ok(form) => json(&Allowed {
            is_allowed: editor.is_some(),
            form,
        }),
        Err(refused) => Answer::text(503, &refused.to_string()),
    }
}

/// Executes the commands of a request, or takes a change back, for a client at `from`.
pub(super) fn change(
    request: &Request,
    from: &str,
    admitted: Admitted,
    editor: Option<&Editor>,
) -> Answer {
    let Some(editor) = editor else {
        return Answer::text(
            403,
            "this page is read-only: start the router with --http-control",
        );
    };
    // A browser sends a cookie whatever page makes the request. Together with SameSite, the Origin
    // and the content type keep pages of other sites from making changes.
    if admitted == Admitted::Cookie && request.header("origin").is_none() {
        return Answer::text(403, "a change with a cookie needs an Origin header");
    }
    let kind = request.header("content-type").unwrap_or_default();
    if kind.split(';').next() != Some("application/json") {
        return Answer::text(415, "a change needs `Content-Type: application/json`");
    }
    let reply = if request.path() == "/undo" {
        editor.undo(from)
    } else {
        match serde_json::from_str::<Commands>(&request.body) {
            Ok(body) => editor.change(from, &body.commands),
            Err(error) => {
                let why =
                    format!("the body must be {{\"commands\":\"pipe 1 config ...\"}}: {error}");
                return Answer::text(400, &why);
            }
        }
    };
    let status = if reply.error.is_some() { 422 } else { 200 };
    let undo = editor.next_undo();
    Answer {
        status,
        ..json(&Changed { reply, undo })
    }
}

fn json(value: &impl Serialize) -> Answer {
    Answer::json(serde_json::to_string(value).expect("an answer is plain"))
}

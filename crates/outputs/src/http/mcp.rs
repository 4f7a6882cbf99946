//! MCP over HTTP. The protocol is rmcp's; here a body gets its bounds, a call its line on record, and a cancellation the
//! call it is meant for.
//!
//! No session is kept: a client of an older protocol gets an id that ties its cancellations to its calls, and that is all it
//! is for.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};

use super::{Doors, Remark, body};
use crate::mcp::{Calls, McpServer, SESSION, random_hex};
use crate::{Asker, Refusal};

pub struct Mcp {
    service: Service,
    calls: Calls,
}

/// What answers the protocol's messages.
type Service = Box<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Response> + Send>> + Send + Sync>;

impl Mcp {
    pub fn new(asker: &Arc<Asker>) -> Self {
        let calls = Calls::default();
        Self::around(McpServer::with_calls(Arc::clone(asker), calls.clone()), calls)
    }

    pub fn around<S: ServerHandler + Clone>(server: S, calls: Calls) -> Self {
        // Host and Origin are checked for every path before a request comes here.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(body::MOST_BYTES)
            .disable_allowed_hosts();
        let sessions = Arc::<NeverSessionManager>::default();
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
        let handle = move |request| {
            let service = service.clone();
            let answered: Pin<Box<dyn Future<Output = Response> + Send>> =
                Box::pin(async move { service.handle(request).await.map(Body::new) });
            answered
        };
        Self { service: Box::new(handle), calls }
    }
}

pub async fn post(State(doors): State<Arc<Doors>>, request: Request) -> Response {
    handled(&doors, request).await.unwrap_or_else(Refusal::into_response)
}

async fn handled(doors: &Doors, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    if !body::is_json(&parts.headers) {
        return Err(Refusal::NotJson);
    }
    let bytes = body::bytes(&parts.headers, body, &doors.patience).await?;
    let Ok(message) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok(refused(StatusCode::BAD_REQUEST, -32700, "the body is no JSON"));
    };
    let session = parts.headers.get(SESSION).and_then(|session| session.to_str().ok()).map(str::to_owned);
    let method = message["method"].as_str().unwrap_or_default();
    if let (Some(session), "notifications/cancelled") = (&session, method) {
        doors.mcp.calls.cancel(&(session.clone(), name_of(&message["params"]["requestId"])));
    }
    let is_first = session.is_none() && method == "initialize";
    let mut response = as_json((doors.mcp.service)(Request::from_parts(parts, Body::from(bytes))).await).await;
    if is_first && let Ok(session) = HeaderValue::from_str(&random_hex()) {
        response.headers_mut().insert(SESSION, session);
    }
    response.extensions_mut().insert(Remark { tool: tool(&doors.asker, &message), ..Remark::default() });
    Ok(response)
}

/// The question that a call asks.
fn tool(asker: &Asker, message: &Value) -> Option<String> {
    let name = message.pointer("/params/name").filter(|_| message["method"] == "tools/call");
    asker.question(name?.as_str()?).map(|question| question.name.to_owned())
}

fn name_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// rmcp says in plain text what is wrong with a request's headers; here it has the protocol's shape.
async fn as_json(response: Response) -> Response {
    const MOST_BYTES: usize = 4096;
    if !response.status().is_client_error() || body::is_json(response.headers()) {
        return response;
    }
    let status = response.status();
    match axum::body::to_bytes(response.into_body(), MOST_BYTES).await {
        Ok(text) => refused(status, -32600, &String::from_utf8_lossy(&text)),
        Err(_) => refused(status, -32600, "the request is not one of MCP"),
    }
}

fn refused(status: StatusCode, code: i32, message: &str) -> Response {
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    (status, axum::Json(error)).into_response()
}

//! The questions as paths. The answer to a question is the body as it is, the same as over MCP.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use gpuwhy_questions::AskError;
use rmcp::model::Tool;
use serde::Serialize;

use super::{Doors, Grant, Remark, body};
use crate::{Refusal, catalog};

/// Which gpuwhy this is, for clients that have yet to find out what to send. No more than that: it is open to all.
#[derive(Serialize)]
pub struct Versions {
    gpuwhy: &'static str,
}

pub async fn versions() -> Json<Versions> {
    Json(Versions { gpuwhy: concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")) })
}

#[derive(Serialize)]
pub struct Health {
    status: &'static str,
    version: &'static str,
    /// The traces that are served, by name.
    traces: Vec<String>,
    questions_running: usize,
    questions_waiting: usize,
    uptime_s: u64,
    /// Requests that could not be put on record.
    audit_lines_lost: u64,
}

pub async fn health(State(doors): State<Arc<Doors>>) -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        traces: doors.asker.traces().names().collect(),
        questions_running: doors.asker.running(),
        questions_waiting: doors.asker.waiting(),
        uptime_s: doors.since.elapsed().as_secs(),
        audit_lines_lost: doors.audit.lost(),
    })
}

#[derive(Serialize)]
pub struct Tools {
    tools: Vec<Tool>,
}

pub async fn list(State(doors): State<Arc<Doors>>) -> Json<Tools> {
    Json(Tools { tools: catalog::tools(doors.asker.questions()) })
}

pub async fn tool(
    State(doors): State<Arc<Doors>>,
    Extension(grant): Extension<Grant>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let name = name.map_or_else(|_| String::new(), |Path(name)| name);
    asked(&doors, grant, &name, &headers, body).await
}

pub async fn sql(
    State(doors): State<Arc<Doors>>,
    Extension(grant): Extension<Grant>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    asked(&doors, grant, "sql", &headers, body).await
}

async fn asked(doors: &Doors, grant: Grant, name: &str, headers: &HeaderMap, body: Body) -> Response {
    let answer = answer(doors, grant, name, headers, body).await;
    let mut response = answer.unwrap_or_else(Refusal::into_response);
    if let Some(question) = doors.asker.question(name) {
        response.extensions_mut().get_or_insert_default::<Remark>().tool = Some(question.name.to_owned());
    }
    response
}

async fn answer(doors: &Doors, grant: Grant, name: &str, headers: &HeaderMap, body: Body) -> Result<Response, Refusal> {
    let question =
        doors.asker.question(name).ok_or_else(|| AskError::NoQuestion { name: name.chars().take(64).collect() })?;
    let parameters = body::parameters(headers, body, &doors.patience).await?;
    let answer = doors.asker.ask(question, parameters, grant.clusters, Arc::new(|_, _| {})).await?;
    let room = doors.rooms.take(answer.bytes)?;
    let mut response = Json(&answer.value).into_response();
    response.extensions_mut().insert(room);
    Ok(response)
}

//! What the MCP conformance suite calls, behind the same doors as the questions: its scenarios want tools, resources and
//! prompts of certain names. Prints its address and serves until it is ended.

use std::sync::Arc;
use std::time::Duration;

use gpuwhy_outputs::{Asker, Bounds, Patience, Plain, Server, Settings};
use gpuwhy_questions::NoHost;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, ListPromptsResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings {
        address: "127.0.0.1:0".parse()?,
        tls: None,
        plain: Plain::OnLoopback,
        token: None,
        tokens: None,
        allowed_hosts: Vec::new(),
        audit_log: Some("/dev/null".into()),
        rate: 10_000,
        has_dashboard: false,
        patience: Patience::default(),
    };
    let asker = Arc::new(Asker::new(Vec::new(), Arc::new(NoHost), Bounds::default()));
    let server = Server::bind_with(settings, asker, Fixture).await?;
    eprintln!("serving {}mcp", server.url());
    server.serve(CancellationToken::new()).await;
    Ok(())
}

#[derive(Clone)]
struct Fixture;

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(typed(tools())?))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let all: Vec<Tool> = typed(tools()).ok()?;
        all.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if call.name == "test_tool_with_progress" {
            tell_progress(&context).await;
        }
        Ok(typed::<CallToolResult>(answer_of(&call.name)?)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = json!([
            {"uri": "test://static-text", "name": "static text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "static binary", "mimeType": "image/png"},
        ]);
        Ok(ListResourcesResult::with_all_items(typed(resources)?))
    }

    async fn read_resource(
        &self,
        asked: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(typed::<ReadResourceResult>(json!({"contents": [content_of(&asked.uri)?]}))?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument = |name: &str| json!({"name": name, "required": true});
        let prompt = |name: &str, arguments: Vec<Value>| json!({"name": name, "description": "A prompt of the conformance suite.", "arguments": arguments});
        let prompts = [
            prompt("test_simple_prompt", vec![]),
            prompt("test_prompt_with_arguments", vec![argument("arg1"), argument("arg2")]),
            prompt("test_prompt_with_embedded_resource", vec![argument("resourceUri")]),
            prompt("test_prompt_with_image", vec![]),
        ];
        Ok(ListPromptsResult::with_all_items(typed(prompts.into_iter().collect())?))
    }

    async fn get_prompt(
        &self,
        asked: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = asked.arguments.map_or(Value::Null, Value::Object);
        let said: Vec<Value> = said_by(&asked.name, &arguments)?;
        let messages: Vec<Value> =
            said.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
        Ok(typed::<GetPromptResult>(json!({"messages": messages}))?.into())
    }
}

/// What the protocol's types are made of is shorter as JSON.
fn typed<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    if let Value::Object(result) = &mut value {
        result.insert("resultType".to_owned(), "complete".into());
    }
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

const PLAIN_TOOLS: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
];

fn tools() -> Value {
    let plain = PLAIN_TOOLS.iter().map(|name| tool(name, json!({"type": "object", "properties": {}})));
    plain.chain([tool("json_schema_2020_12_tool", whole_schema()), tool("test_headers", with_header())]).collect()
}

fn tool(name: &str, input: Value) -> Value {
    json!({"name": name, "description": "A tool of the conformance suite.", "inputSchema": input})
}

/// Keywords of JSON Schema 2020-12 that have to arrive as they are.
fn whole_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}

/// A parameter that clients repeat as a header.
fn with_header() -> Value {
    json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}, "required": ["region"]})
}

fn answer_of(tool: &str) -> Result<Value, ErrorData> {
    let content = match tool {
        "test_image_content" => json!([image()]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([embedded("test://embedded-resource")]),
        "test_multiple_content_types" => {
            json!([text("Several kinds."), image(), embedded("test://mixed-content-resource")])
        }
        "test_error_handling" => return Ok(json!({"isError": true, "content": [text("This is meant to fail.")]})),
        name if PLAIN_TOOLS.contains(&name) || name == "json_schema_2020_12_tool" || name == "test_headers" => {
            json!([text("Done.")])
        }
        _ => return Err(ErrorData::invalid_params(format!("there is no tool {tool:?}"), None)),
    };
    Ok(json!({"content": content}))
}

async fn tell_progress(context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else { return };
    for done in [0.0, 50.0, 100.0] {
        let said = ProgressNotificationParam::new(token.clone(), done).with_total(100.0);
        let _ = context.peer.notify_progress(said).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn content_of(uri: &str) -> Result<Value, ErrorData> {
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    match (uri, id) {
        ("test://static-text", _) => Ok(json!({"uri": uri, "mimeType": "text/plain", "text": "Some text."})),
        ("test://static-binary", _) => Ok(json!({"uri": uri, "mimeType": "image/png", "blob": PNG})),
        (_, Some(id)) => {
            let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string();
            Ok(json!({"uri": uri, "mimeType": "application/json", "text": text}))
        }
        _ => Err(ErrorData::resource_not_found("there is no such resource", Some(json!({"uri": uri})))),
    }
}

fn said_by(prompt: &str, arguments: &Value) -> Result<Vec<Value>, ErrorData> {
    match prompt {
        "test_simple_prompt" => Ok(vec![text("This is a prompt.")]),
        "test_prompt_with_arguments" => {
            let said = format!("arg1='{}', arg2='{}'", word(arguments, "arg1"), word(arguments, "arg2"));
            Ok(vec![text(&said)])
        }
        "test_prompt_with_embedded_resource" => Ok(vec![embedded(word(arguments, "resourceUri")), text("Read it.")]),
        "test_prompt_with_image" => Ok(vec![image(), text("Look at it.")]),
        _ => Err(ErrorData::invalid_params(format!("there is no prompt {prompt:?}"), None)),
    }
}

fn word<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn embedded(uri: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": "Some text."}})
}

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A sound of no length.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

//! What a question is made of.

use clap::{ArgMatches, Args, Command};
use gpuwhy_analysis::rules::RULES;
use gpuwhy_model::Cause;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{AskError, Asked, QUESTIONS};

/// A question: the struct holds its parameters. The struct's doc comment says what it answers.
pub trait Ask: Args + DeserializeOwned + Serialize + JsonSchema {
    /// As it is called in every door.
    const NAME: &'static str;
    /// Names that published recipes use for it.
    const ALIASES: &'static [&'static str] = &[];
    /// Whether it does something on this host, beyond reading.
    const ACTS: bool = false;

    type Answer: Serialize + JsonSchema;

    fn ask(&self, asked: &Asked<'_>) -> Result<Self::Answer, AskError>;
}

/// A question whose types are not known, as doors see it.
pub struct Question {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub acts: bool,
    input: fn() -> Schema,
    output: fn() -> Schema,
    output_in: fn(&mut SchemaGenerator) -> Schema,
    command: fn(Command) -> Command,
    parameters: fn(&ArgMatches) -> Result<Value, clap::Error>,
    answer: fn(Value, &Asked<'_>) -> Result<Value, AskError>,
}

impl Question {
    pub const fn new<Q: Ask>() -> Self {
        Self {
            name: Q::NAME,
            aliases: Q::ALIASES,
            acts: Q::ACTS,
            input: || schema_of::<Q>(SchemaSettings::draft2020_12().for_deserialize()),
            output: || schema_of::<Q::Answer>(answer_schemas()),
            output_in: SchemaGenerator::subschema_for::<Q::Answer>,
            command: Q::augment_args,
            parameters: |matches| Ok(parameters_of(&Q::from_arg_matches(matches)?)),
            answer: answer::<Q>,
        }
    }

    pub fn has_name(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// What it answers, in a sentence or two.
    pub fn about(&self) -> String {
        self.input().get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
    }

    /// The JSON schema of its parameters.
    pub fn input(&self) -> Schema {
        (self.input)()
    }

    /// The JSON schema of its answer.
    pub fn output(&self) -> Schema {
        (self.output)()
    }

    /// The same as part of a greater whole, for which the generator keeps the types that it names.
    pub fn output_in(&self, generator: &mut SchemaGenerator) -> Schema {
        (self.output_in)(generator)
    }

    /// As a subcommand of the command line.
    pub fn command(&self) -> Command {
        (self.command)(Command::new(self.name)).about(self.about())
    }

    /// The parameters of such a command.
    pub fn parameters(&self, matches: &ArgMatches) -> Result<Value, clap::Error> {
        (self.parameters)(matches)
    }

    /// Asks it. Parameters are a JSON object, or null for none.
    pub fn ask(&self, parameters: Value, asked: &Asked<'_>) -> Result<Value, AskError> {
        let parameters = match parameters {
            Value::Null => Value::Object(Map::new()),
            Value::Object(given) => {
                self.refuse_unknown(&given)?;
                Value::Object(given)
            }
            _ => return Err(AskError::Parameters { message: "parameters are a JSON object".to_owned() }),
        };
        (self.answer)(parameters, asked)
    }

    /// A misspelt parameter that is passed over would give the answer to another question.
    fn refuse_unknown(&self, given: &Map<String, Value>) -> Result<(), AskError> {
        let schema = self.input();
        let known = schema.get("properties").and_then(Value::as_object);
        let unknown = given.keys().find(|name| !known.is_some_and(|known| known.contains_key(*name)));
        let Some(unknown) = unknown else { return Ok(()) };
        let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let message = format!("{} has no parameter {unknown:?}; it has {}", self.name, names.join(", "));
        Err(AskError::Parameters { message })
    }
}

/// The question of this name or alias.
pub fn find(name: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|question| question.has_name(name))
}

fn answer<Q: Ask>(parameters: Value, asked: &Asked<'_>) -> Result<Value, AskError> {
    let question: Q =
        serde_json::from_value(parameters).map_err(|error| AskError::Parameters { message: error.to_string() })?;
    asked.go_on()?;
    Ok(to_json(question.ask(asked)?))
}

/// Types of our own become JSON without fail: their keys are strings.
fn to_json(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// A question's parameters, as any door takes them. What was not said is not said at all.
pub fn parameters_of<Q: Ask>(question: &Q) -> Value {
    match to_json(question) {
        Value::Object(given) => given.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// How schemas of answers are made: they know the closed list of causes.
pub fn answer_schemas() -> SchemaSettings {
    SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(list_causes))
}

fn list_causes(schema: &mut Schema) {
    if schema.get("format").and_then(Value::as_str) == Some(Cause::FORMAT) {
        schema.remove("format");
        schema.insert("enum".to_owned(), RULES.iter().map(|rule| rule.cause).collect());
    }
}

/// Complete in itself, as MCP and OpenAPI 3.1 want it.
fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Schema {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    if schema.get("type").and_then(Value::as_str) == Some("object") && schema.get("properties").is_none() {
        schema.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    schema
}

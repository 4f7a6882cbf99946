/** Asks the server a question. This is the only place that talks to the network. */
import type { Answers } from "./answers";
import { parseExactly } from "./exact";

export type Parameters = Record<string, string | number | boolean | string[] | number[] | undefined>;

/** Why there is no answer, in the server's words. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | null,
  ) {
    super(message);
  }
}

export async function ask<Question extends keyof Answers>(
  question: Question,
  parameters: Parameters,
  signal?: AbortSignal,
): Promise<Answers[Question]> {
  const request: RequestInit = { method: "POST", headers: headers(), body: JSON.stringify(parameters) };
  if (signal) request.signal = signal;
  const response = await fetch(`api/v1/tools/${question}`, request).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new Refusal("unreachable", "The server does not answer.", "Is `gpuwhy dashboard` still running?");
  });
  const text = await response.text();
  if (response.ok) return parseExactly(text) as Answers[Question];
  if (response.status === 401) askForToken();
  throw refusal(response.status, text);
}

/** The traces that are served here, by name. None where the server does not say. */
export async function servedTraces(): Promise<string[]> {
  const response = await fetch("api/v1/health", { headers: headers() }).catch(() => null);
  if (!response?.ok) return [];
  const { traces } = (await response.json()) as { traces?: string[] };
  return traces ?? [];
}

const TOKEN = "gpuwhy-token";
let onUnauthorized: () => void = () => undefined;

/** Says who shows the form when the server wants a token. */
export function whenUnauthorized(show: () => void): void {
  onUnauthorized = show;
}

export function keepToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
}

function askForToken(): void {
  sessionStorage.removeItem(TOKEN);
  onUnauthorized();
}

function headers(): Record<string, string> {
  const token = sessionStorage.getItem(TOKEN);
  const json = { "content-type": "application/json" };
  return token ? { ...json, authorization: `Bearer ${token}` } : json;
}

function refusal(status: number, text: string): Refusal {
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string; hint?: string | null } };
    return new Refusal(error.code, error.message, error.hint ?? null);
  } catch {
    return new Refusal("unexpected", `The server answered ${status}.`, null);
  }
}

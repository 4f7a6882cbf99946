/** An answer on its way to the page: loading, refused, there, and asked again while the trace still grows. */
import { createContext, type ComponentChildren } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import type { Answers } from "../answers";
import { ask, Refusal, type Parameters } from "../ask";

export interface Asked<Answer> {
  readonly answer: Answer | null;
  readonly refusal: Refusal | null;
  readonly isLoading: boolean;
}

/** Whether the trace is still being written. */
export const Live = createContext(false);

const POLL_MS = 2000;

/** Asks when its parameters change. The last answer stays until the next one is there, so that nothing jumps. */
export function useAnswer<Question extends keyof Answers>(
  question: Question | null,
  parameters: Parameters,
): Asked<Answers[Question]> {
  const [state, setState] = useState<Asked<Answers[Question]>>({ answer: null, refusal: null, isLoading: true });
  const live = useContext(Live);
  const key = JSON.stringify([question, parameters]);
  const last = useRef("");
  useEffect(() => {
    if (!question) return undefined;
    const sameQuestion = JSON.parse(last.current || "[null]")[0] === question;
    last.current = key;
    const control = new AbortController();
    setState(({ answer }) => ({ answer: sameQuestion ? answer : null, refusal: null, isLoading: true }));
    const load = () =>
      ask(question, parameters, control.signal).then(
        (answer) => setState({ answer, refusal: null, isLoading: false }),
        (error: unknown) => {
          if (control.signal.aborted) return;
          const refusal = error instanceof Refusal ? error : new Refusal("failed", String(error), null);
          setState(({ answer }) => ({ answer, refusal, isLoading: false }));
        },
      );
    const stop = live ? poll(load) : (void load(), () => undefined);
    return () => {
      control.abort();
      stop();
    };
  }, [key, live]);
  return state;
}

/** One request at a time, two seconds apart, and none while nobody looks. */
function poll(load: () => Promise<void>): () => void {
  let timer = 0;
  let stopped = false;
  const turn = async () => {
    if (!document.hidden) await load();
    if (!stopped) timer = window.setTimeout(() => void turn(), POLL_MS);
  };
  void turn();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

/** Shows an answer, or why there is none, in the place where it belongs. */
export function Answered<Answer>(props: {
  of: Asked<Answer>;
  what: string;
  children: (answer: Answer) => ComponentChildren;
}) {
  const { answer, refusal, isLoading } = props.of;
  return (
    <>
      {refusal && <Refused refusal={refusal} />}
      {answer !== null && props.children(answer)}
      {answer === null && isLoading && (
        <p class="loading" role="status">
          Reading {props.what} …
        </p>
      )}
    </>
  );
}

export function Refused({ refusal }: { refusal: Refusal }) {
  return (
    <div class="refused" role="alert">
      <p>{refusal.message}</p>
      {refusal.hint && <p class="hint">{refusal.hint}</p>}
    </div>
  );
}

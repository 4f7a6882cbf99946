/** A titled part of a page. */
import type { ComponentChildren } from "preact";

export function Panel(props: {
  title: string;
  about?: string;
  class?: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}) {
  const id = `panel-${props.title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <section class={`panel ${props.class ?? ""}`} aria-labelledby={id}>
      <header class="panel-head">
        <div>
          <h2 id={id}>{props.title}</h2>
          {props.about && <p class="about">{props.about}</p>}
        </div>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

/** One choice of a few. */
export function Choice<Value extends string>(props: {
  label: string;
  of: readonly (readonly [Value, string])[];
  value: Value;
  onChoose: (value: Value) => void;
}) {
  return (
    <fieldset class="choice">
      <legend class="visually-hidden">{props.label}</legend>
      {props.of.map(([value, text]) => (
        <label key={value}>
          <input
            type="radio"
            name={props.label}
            checked={value === props.value}
            onChange={() => props.onChoose(value)}
          />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

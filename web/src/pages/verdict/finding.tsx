/** One finding: what was lost, who is to blame, where to look, what to change, and how that is known. */
import type { ComponentChildren } from "preact";
import type { Finding, Place } from "../../answers";
import { Location } from "../../parts/place";
import { since } from "../../exact";
import { clock, count, duration, share, who } from "../../units";
import { ChainGraph } from "./chain";

const SEVERITY = { high: "Severe", medium: "Moderate", low: "Minor" } as const;

export function FindingCard({ finding, isFirst }: { finding: Finding; isFirst: boolean }) {
  const id = `finding-${finding.id}`;
  const body = <Body finding={finding} />;
  if (isFirst) {
    return (
      <article class={`panel finding first ${finding.severity}`} aria-labelledby={id}>
        <p class="eyebrow">{finding.severity === "low" ? "Worth knowing" : "Why your GPU is waiting"}</p>
        <Title finding={finding} id={id} />
        {body}
      </article>
    );
  }
  return (
    <details class={`panel finding ${finding.severity}`}>
      <summary>
        <Title finding={finding} id={id} />
      </summary>
      {body}
    </details>
  );
}

function Title({ finding, id }: { finding: Finding; id: string }) {
  return (
    <div class="finding-title">
      <h2 id={id}>{finding.title}</h2>
      <span class={`badge ${finding.severity}`}>{SEVERITY[finding.severity]}</span>
      <p class="summary">{finding.summary}</p>
    </div>
  );
}

function Body({ finding }: { finding: Finding }) {
  const { impact, victim, culprit, symptom } = finding;
  return (
    <>
      <dl class="facts">
        {impact.lost_ns > 0 && (
          <Fact name="Lost" value={share(impact.share)}>
            of its time, {duration(impact.lost_ns)}
          </Fact>
        )}
        {finding.during && (
          <Fact name="When" value={duration(since(finding.during.from_ns, finding.during.to_ns))}>
            from {clock(finding.during.from_ns)} on
          </Fact>
        )}
        <Fact name="How sure" value={share(finding.confidence)}>
          <meter min={0} max={1} value={finding.confidence} aria-label="How sure" />
        </Fact>
        {culprit && (
          <Fact name="Culprit" value={culprit.pid ? who(culprit.comm, culprit.pid, culprit.tid) : culprit.comm}>
            {culprit.detail}
          </Fact>
        )}
        <Fact name="Victim" value={who(victim.comm, victim.pid, victim.tid)}>
          {finding.victims > 1 && `and ${count(finding.victims - 1)} more like it; `}
          {impact.calls_affected > 0 && `${count(impact.calls_affected)} of ${count(impact.calls_total)} calls`}
          {symptom && impact.calls_affected === 0 && symptom.op}
        </Fact>
      </dl>
      <div class="act">
        <WhereToLook places={finding.where} />
        {finding.fix.length > 0 && (
          <section>
            <h3>What to change</h3>
            <ul class="fix">
              {finding.fix.map((text) => (
                <li key={text}>{text}</li>
              ))}
            </ul>
          </section>
        )}
      </div>
      <ChainGraph finding={finding} />
    </>
  );
}

function Fact({ name, value, children }: { name: string; value: string; children?: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong>
        <span class="fact-more">{children}</span>
      </dd>
    </div>
  );
}

/** The culprit's line first; the calls around it are there for those who want them. */
function WhereToLook({ places }: { places: Place[] }) {
  const first = places[0];
  if (!first) return null;
  const victim = places.find((place) => place.role === "victim" && place !== first);
  const rest = places.filter((place) => place !== first && place !== victim);
  return (
    <section>
      <h3>The line to look at</h3>
      <p class="look">
        <Location {...first} />
      </p>
      {victim && (
        <p class="look-more">
          The victim waits at <Location {...victim} />
        </p>
      )}
      {rest.length > 0 && (
        <details class="more">
          <summary>{rest.length} more places around it</summary>
          <ul>
            {rest.map((place, index) => (
              <li key={index}>
                <span class="muted">{place.role}: </span>
                <Location {...place} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

import assert from "node:assert/strict";
import test from "node:test";
import { answering, type Component } from "../src/base/component.ts";

/** A component whose server function gives `answer`; Gradio's gives nothing if it failed. */
function componentWith(answer: string | undefined): Component {
  const server = { ask: (...given: unknown[]) => Promise.resolve(answer && answer + given.join()) };
  return { props: { value: "" }, server } as unknown as Component;
}

test("a server function that got no answer rejects", async () => {
  const { server } = answering(componentWith(undefined));
  await assert.rejects(server.ask("x"), /did not answer/);
});

test("an answer is passed on, and so is what the component has beside its functions", async () => {
  const component = componentWith("answer to ");
  const { props, server } = answering(component);
  assert.equal(await server.ask(1, 2), "answer to 1,2");
  assert.equal(props, component.props);
});

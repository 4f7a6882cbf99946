import { render } from "preact";
import { App } from "./app";
import { apply } from "./theme";
import "uplot/dist/uPlot.min.css";
import "./styles/index.css";

const root = document.getElementById("app");
apply();
if (root) render(<App />, root);

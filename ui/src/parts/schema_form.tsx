// A form made of a JSON Schema: one control per field, by its type.

import { useState } from "preact/hooks";
import type { Dataset } from "../types";
import { Words } from "./words";

export interface Schema {
  type?: string;
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  anyOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minLength?: number;
  $ref?: string;
  $defs?: Record<string, Schema>;
}

type Control = "choice" | "check" | "number" | "interval" | "dataset" | "text" | "long" | "lines" | "json";

export interface Field {
  name: string;
  schema: Schema;
  control: Control;
  required: boolean;
}

/** Times between two steps in words, by their seconds. A cron expression takes the place of one. */
const INTERVALS: [number, string][] = [
  [30, "every 30 seconds"], [60, "every minute"], [300, "every 5 minutes"], [900, "every 15 minutes"], [3600, "every hour"], [21600, "every 6 hours"], [86400, "every day"], [604800, "every week"],
];
const HOURLY = 3600;

/** Fields whose text is longer than a line. */
const LONG = /^(question|sql|instructions?|prompt|text|body|goal|code|brief|describe)$/;

/** The fields of an object: those that must be filled, then those that say what to do, then the others. */
export function fieldsOf(schema: Schema): Field[] {
  const required = new Set(schema.required);
  const found = Object.entries(schema.properties ?? {}).map(([name, given]) => {
    const resolved = resolve(given, schema);
    return { name, schema: resolved, control: controlOf(name, resolved, "cron" in (schema.properties ?? {})), required: required.has(name) };
  });
  const rank = (field: Field) => (field.required ? 0 : field.control === "long" ? 1 : field.control === "interval" ? 2 : 3);
  return found.toSorted((one, other) => rank(one) - rank(other));
}

/** A reference as what it refers to, and "this or nothing" as this. */
function resolve(schema: Schema, root: Schema): Schema {
  if (schema.$ref) return resolve({ ...root.$defs?.[schema.$ref.replace("#/$defs/", "")], ...without(schema, "$ref") }, root);
  const options = schema.anyOf?.filter((one) => one.type !== "null");
  if (options?.length === 1) return resolve({ ...options[0], ...without(schema, "anyOf") }, root);
  if (schema.allOf?.length === 1) return resolve({ ...schema.allOf[0], ...without(schema, "allOf") }, root);
  return schema;
}

function without(schema: Schema, name: keyof Schema): Schema {
  const { [name]: _left, ...rest } = schema;
  return rest;
}

function controlOf(name: string, schema: Schema, scheduled: boolean): Control {
  if (schema.enum) return "choice";
  if (schema.type === "boolean") return "check";
  if (name === "every_s" && scheduled) return "interval";
  if (schema.type === "number" || schema.type === "integer") return "number";
  if (schema.type === "array" && schema.items?.type === "string") return "lines";
  if (schema.type === "string") return name === "source" || name === "dataset" ? "dataset" : LONG.test(name) ? "long" : "text";
  return "json";
}

/** Read a form back. Fields that are left as they were are not sent, so that the server's defaults hold. */
export function readForm(form: FormData, fields: Field[]): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const { name, schema, control, required } of fields) {
    const text = String(form.get(`f-${name}`) ?? "").trim();
    if (control === "check") {
      if ((text === "on") !== Boolean(schema.default)) found[name] = text === "on";
    } else if (text === "") {
      if (required && control !== "number") found[name] = "";
    } else if (control === "interval") {
      if (!String(form.get("f-cron") ?? "").trim()) found[name] = Number(text);
    } else if (control === "number") found[name] = Number(text);
    else if (control === "lines") found[name] = text.split("\n").map((line) => line.trim()).filter(Boolean);
    else if (control === "json") found[name] = parse(name, text);
    else if (control === "choice") found[name] = schema.enum?.find((one) => String(one) === text);
    else found[name] = text;
  }
  return found;
}

function parse(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SyntaxError(`\`${name}\` is not JSON: ${(error as Error).message}`);
  }
}

export function label(name: string): string {
  const words = name.replace(/_(s|ms|usd)$/, "").replaceAll("_", " ");
  const unit = /_s$/.test(name) ? ", seconds" : /_ms$/.test(name) ? ", milliseconds" : /_usd$/.test(name) ? ", US dollars" : "";
  if (/^(sql|url|id)$/.test(words)) return words.toUpperCase();
  return `${words[0]?.toUpperCase()}${words.slice(1)}${unit}`;
}

export function SchemaFields({ fields, datasets }: { fields: Field[]; datasets: Dataset[] }) {
  const [all, setAll] = useState(false);
  const first = fields.filter((field, index) => field.required || index < 5 || field.control === "long");
  const shown = all ? fields : first;
  return (
    <>
      {shown.map((field) => <FieldRow key={field.name} field={field} datasets={datasets} />)}
      {fields.length > first.length && !all && <><span /><span><button type="button" class="link" onClick={() => setAll(true)}>{fields.length - first.length} more settings</button></span></>}
    </>
  );
}

function FieldRow({ field, datasets }: { field: Field; datasets: Dataset[] }) {
  const id = `f-${field.name}`;
  return (
    <>
      <label for={id}>{field.control === "interval" ? "How often" : label(field.name)}{field.required && <small class="must"> required</small>}</label>
      <div>
        <Input field={field} id={id} datasets={datasets} />
        {field.control !== "interval" && field.schema.description && <small class="help"><Words text={field.schema.description} />{field.name === "cron" && " It takes the place of the interval above."}</small>}
      </div>
    </>
  );
}

function Input({ field: { schema, control, required }, id, datasets }: { field: Field; id: string; datasets: Dataset[] }) {
  const given = schema.default === undefined || schema.default === null ? "" : typeof schema.default === "object" ? JSON.stringify(schema.default) : String(schema.default);
  switch (control) {
    case "choice":
      return <select id={id} name={id}>{!required && given === "" && <option value="">as set</option>}{schema.enum?.map((one) => <option key={String(one)} value={String(one)} selected={String(one) === given}>{String(one)}</option>)}</select>;
    case "dataset":
      return <select id={id} name={id}>{!required && <option value="">none</option>}{datasets.map((one) => <option key={one.id} value={one.id}>{one.id}</option>)}</select>;
    case "check":
      return <input id={id} name={id} type="checkbox" defaultChecked={Boolean(schema.default)} />;
    case "interval":
      return <select id={id} name={id}>{INTERVALS.map(([seconds, words]) => <option key={seconds} value={seconds} selected={String(seconds) === (given || String(HOURLY))}>{words}</option>)}</select>;
    case "number":
      return <input id={id} name={id} type="number" step={schema.type === "integer" ? 1 : "any"} min={schema.minimum} max={schema.maximum} required={required} placeholder={given} class="short" />;
    case "long":
      return <textarea id={id} name={id} rows={2} required={required} placeholder={given} />;
    case "lines":
      return <textarea id={id} name={id} rows={2} placeholder="one per line" />;
    case "json":
      return <textarea id={id} name={id} rows={2} class="mono" placeholder={given || "JSON"} />;
    default:
      return <input id={id} name={id} required={required} placeholder={given} autoComplete="off" />;
  }
}

import { STATUS_CODES } from 'node:http'
import type { Field, Kind } from '../../src/catalog/catalog.ts'
import { extensionOf, fieldTypes, switchOf } from '../../src/catalog/fields.ts'
import { commands } from '../../src/cli/commands.ts'
import { queues } from '../../src/events/jobs.ts'
import { findOperator, operatorNames } from '../../src/query/operators.ts'
import { cell, type Page, page, table } from './markdown.ts'
import { platformRoutes, routePages } from './routes.ts'
import { entriesOfShapes, membersOfType, refusals } from './source.ts'
import { toolsPage } from './tools.ts'

/** The pages of `docs/reference/`. */
export async function referencePages(): Promise<readonly Page[]> {
  const routes = await platformRoutes()
  return [
    ...routePages(routes),
    toolsPage(routes),
    fieldTypesPage(),
    operatorsPage(),
    eventsPage(),
    queuesPage(),
    await commandsPage(),
    errorsPage(),
  ]
}

/** By kind of value, as it is answered; what is taken besides. */
const jsonForms: Readonly<Record<Kind, string>> = {
  text: '`"text"`',
  integer: '`42`',
  bigint: '`42`; beyond ±(2⁵³−1) `"9007199254740993"`, which is also taken',
  decimal: '`"12.50"`; a number is taken, too',
  float: '`0.5`',
  boolean: '`true`',
  datetime: '`"2026-03-14T09:26:53.589Z"`; with any offset is taken, too',
  datetime_no_tz: '`"2026-03-14T09:26:53.589Z"`; an offset is ignored',
  date: '`"2026-03-14"`',
  time: '`"13:45:00+00"`',
  time_no_tz: '`"13:45:00"`',
  json: 'any JSON',
  uuid: '`"0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44"`',
  enum: 'one of `values`',
  array: 'a list',
  range: 'a range',
  geometry: 'GeoJSON',
  geography: 'GeoJSON',
  vector: '`[0.1, 0.2]`',
}

/** Bounds as JSON has them, by the kind of the elements. */
const rangeBounds: Partial<Record<Kind, readonly [string, string]>> = {
  integer: ['1', '5'],
  bigint: ['1', '5'],
  decimal: ['"1.50"', '"5.00"'],
  float: ['0.5', '5.5'],
  datetime: ['"2026-03-14T09:00:00.000Z"', '"2026-03-14T17:00:00.000Z"'],
  datetime_no_tz: ['"2026-03-14T09:00:00.000Z"', '"2026-03-14T17:00:00.000Z"'],
  date: ['"2026-03-14"', '"2026-03-21"'],
  time: ['"09:00:00+00"', '"17:00:00+00"'],
  time_no_tz: ['"09:00:00"', '"17:00:00"'],
}

/** The JSON of a value of a type. */
export function formOf(kind: Kind, element: Kind | undefined): string {
  if (kind === 'array') return `a list of ${jsonForms[element!]}`
  if (kind !== 'range') return jsonForms[kind]
  const [lower, upper] = rangeBounds[element!]!
  const whole = `{"lower": ${lower}, "upper": ${upper}, "lowerInclusive": true, "upperInclusive": false}`
  return `\`${whole}\`, or \`{"empty": true}\`; \`[${lower}, ${upper}]\` is taken, too`
}

function fieldTypesPage(): Page {
  const rows = Object.entries(fieldTypes).map(([name, { kind, pgType, element, default: chosen }]) => [
    `\`${name}\``,
    `\`${pgType({ dimensions: 3 })}\``,
    formOf(kind, element),
    needsOf(name),
    chosen === undefined ? '' : `made by the database (\`${chosen.kind}\`)`,
  ])
  const lines = [
    'The values of `type` in a definition; the members of a field are in [schema-members.md](../schema-members.md#a-column), their',
    'meaning in [schema-language.md](../schema-language.md). A type without a default of its own is null unless `defaultValue` says',
    'otherwise. `String` with `values.stringLength` is `varchar(n)`, `Decimal` with `values.precision` and `values.scale` `numeric(p,s)`.',
    '',
    ...table(['type', 'PostgreSQL', 'JSON', 'needs', 'default'], rows),
  ]
  return page('field-types', 'Field types', '`src/catalog/fields.ts`', lines)
}

function needsOf(type: Field['type']): string {
  const extension = extensionOf(type)
  const variable = extension && switchOf[extension]
  return [extension, variable && `\`${variable}\``].filter((word) => word !== undefined).join(', ')
}

/** The operand of each operator, for the first of its kinds of fields. */
export const operands: Readonly<Record<string, unknown>> = {
  eq: 'text',
  ne: 'text',
  not: 'text',
  gt: 'text',
  gte: 'text',
  lt: 'text',
  lte: 'text',
  in: ['one', 'two'],
  notIn: ['one', 'two'],
  is: null,
  isNull: true,
  isNotNull: true,
  empty: true,
  between: ['a', 'f'],
  notBetween: ['a', 'f'],
  like: 'part',
  notLike: 'part',
  iLike: 'part',
  notILike: 'part',
  startsWith: 'part',
  endsWith: 'part',
  startsWiths: 'part',
  endsWiths: 'part',
  nstartsWith: 'part',
  nendsWith: 'part',
  nstartsWiths: 'part',
  nendsWiths: 'part',
  regex: '^[a-z]+$',
  arraycontains: ['one'],
  arraycontained: ['one', 'two'],
  overlaps: ['one', 'two'],
  arraylength: { op: 'gte', value: 2 },
  arrayempty: true,
  jsonbContains: { color: 'red' },
  jsonbContainedBy: { color: 'red', size: 5 },
  jsonbNotContains: { color: 'red' },
  jsonbHasKey: 'color',
  jsonbHasAnyKeys: ['color', 'size'],
  jsonbHasAllKeys: ['color', 'size'],
  jsonbPathExists: '$.parts[*] ? (@.price > 5)',
  jsonbPathMatch: '$.size > 5',
  jsonbKeyEquals: { key: 'color', value: 'red' },
  jsonbKeyNotEquals: { key: 'color', value: 'red' },
  jsonbKeyGt: { key: 'size', value: 5 },
  jsonbKeyGte: { key: 'size', value: 5 },
  jsonbKeyLt: { key: 'size', value: 5 },
  jsonbKeyLte: { key: 'size', value: 5 },
  jsonbKeyIn: { key: 'color', values: ['red', 'blue'] },
  jsonbKeyNotIn: { key: 'color', values: ['red', 'blue'] },
  jsonbKeyLike: { key: 'color', pattern: 'r%' },
  jsonbKeyIsNull: 'color',
  jsonbKeyIsNotNull: 'color',
  jsonbArrayLength: { path: 'parts', op: 'gte', value: 2 },
  jsonbTypeOf: { path: 'size', type: 'number' },
  jsonbDeepValue: { path: 'maker.name', value: 'Babbage' },
  within: {
    type: 'Polygon',
    coordinates: [
      [
        [8, 47],
        [9, 47],
        [9, 48],
        [8, 47],
      ],
    ],
  },
  containsGEO: { type: 'Point', coordinates: [8.5, 47.4] },
  intersects: { type: 'Point', coordinates: [8.5, 47.4] },
  nIntersects: { type: 'Point', coordinates: [8.5, 47.4] },
  dwithin: { geometry: { type: 'Point', coordinates: [8.5, 47.4] }, distance: 1000 },
  vectorL2: { vector: [0.1, 0.2], threshold: 0.5 },
  vectorCosine: { vector: [0.1, 0.2], threshold: 0.5 },
  vectorInnerProduct: { vector: [0.1, 0.2], threshold: 0.5 },
  vectorL1: { vector: [0.1, 0.2], threshold: 0.5 },
}

function operandOf(name: string): string {
  if (!Object.hasOwn(operands, name)) throw new Error(`scripts/reference/pages.ts has no operand for ${name}`)
  return `\`${JSON.stringify(operands[name])}\``
}

function operatorsPage(): Page {
  const names = operatorNames()
  const aliases = Map.groupBy(names, (name) => findOperator(name)!.name)
  const rows = [...aliases].map(([own, all]) => {
    const { kinds, needs } = findOperator(own)!.operator
    return [
      `\`${own}\``,
      all
        .filter((name) => name !== own)
        .map((name) => `\`${name}\``)
        .join(', '),
      cell(operandOf(own)),
      kinds === undefined ? 'all' : [...kinds].join(', '),
      needs ?? '',
    ]
  })
  const lines = [
    'The words of a filter: `{"price": {"lt": 100}}`. Kinds are those of [field types](field-types.md). What each operator takes and',
    'finds is in [query-language.md](../query-language.md#filter).',
    '',
    ...table(['operator', 'also', 'operand, e.g.', 'kinds of fields', 'needs'], rows),
  ]
  return page('operators', 'Operators', '`src/query/operators.ts`', lines)
}

function eventsPage(): Page {
  const rows = membersOfType('src/events/types.ts', 'EventData').map(({ name, type, comment }) => [
    `\`${name}\``,
    `\`${cell(type)}\``,
    cell(comment),
  ])
  const lines = [
    'The facts that the log holds beside the changes of rows, which are `create`, `update` and `delete` of a collection.',
    '',
    ...table(['event', 'data', 'meaning'], rows),
  ]
  return page('events', 'Events', '`src/events/types.ts`', lines)
}

function queuesPage(): Page {
  const rows = entriesOfShapes('src/events/jobs.ts', 'jobShapes').map(({ name, type, comment }) => {
    const { retryLimit = 0, retryDelay = 0, retryBackoff, expireInSeconds } = queues[name as keyof typeof queues]
    const retries = retryLimit === 0 ? 'none' : `${retryLimit}, ${retryBackoff ? 'from ' : ''}${retryDelay} s apart`
    return [`\`${name}\``, type, retries, `${expireInSeconds} s`, cell(comment)]
  })
  const lines = [
    'Jobs wait in these queues until a worker does them ([operating.md](../operating.md)). An attempt that takes longer than its time',
    'counts as failed.',
    '',
    ...table(['queue', 'a job carries', 'attempts after the first', 'time', 'work'], rows),
  ]
  return page('queues', 'Queues', '`src/events/jobs.ts`', lines)
}

async function commandsPage(): Promise<Page> {
  const sections = Object.entries(commands).map(async ([name, { about, load }]) => {
    const { usage } = await load()
    return [
      ...[`## daybook ${name}`, '', `${about[0]!.toUpperCase()}${about.slice(1)}.`, ''],
      ...['```', ...usage.trimEnd().split('\n'), '```', ''],
    ]
  })
  return page('commands', 'Commands', '`src/cli/`', [
    '`npx daybook <command>`, in the directory of the installation. Each prints this with `--help`. Without `DATABASE_URL` they find the embedded',
    'database of the directory, and run it meanwhile where `daybook start` does not.',
    '',
    ...(await Promise.all(sections)).flat(),
  ])
}

function errorsPage(): Page {
  const byCode = Map.groupBy(refusals(), ({ code }) => code)
  const rows = [...byCode]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([code, places]) => [
      `\`${code}\``,
      unique(places.map(({ status }) => status))
        .sort()
        .join(', '),
      cell(
        unique(places.map(({ message }) => message))
          .slice(0, 3)
          .join(' · '),
      ),
    ])
  const general = [400, 401, 403, 404, 409, 410, 412, 413, 415, 422, 429, 500, 503].map((status) => [
    `\`${STATUS_CODES[status]!.toUpperCase().replaceAll(/[^A-Z]+/g, '_')}\``,
    String(status),
  ])
  const lines = [
    'A refusal has a status, a `code` for programs and a `message` for people ([errors.md](../errors.md) has the bodies). `…` stands for',
    'names and values.',
    '',
    '## Codes of their own',
    '',
    ...table(['code', 'status', 'message'], rows),
    '',
    '## Codes by status',
    '',
    'Refusals without a code of their own have that of their status.',
    '',
    ...table(['code', 'status'], general),
  ]
  return page('errors', 'Error codes', 'every refusal in `src/`', lines)
}

const unique = (texts: readonly string[]): string[] => [...new Set(texts)].filter((text) => text !== '')

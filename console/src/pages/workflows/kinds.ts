/** A member of a node's data, and how it is edited. */
export type Option = {
  readonly name: string
  readonly label: string
  /** `collection`: its name, or a template. `value`: JSON where it reads as such, else a text; templates are texts. */
  readonly form: 'text' | 'collection' | 'lines' | 'number' | 'check' | 'json' | 'value' | readonly string[]
  readonly hint?: string
}

export type Kind = {
  readonly title: string
  readonly group: string
  readonly about: string
  readonly options: readonly Option[]
}

const text = (name: string, label: string, hint?: string): Option => ({
  ...{ name, label, form: 'text' },
  ...(hint !== undefined && { hint }),
})
const json = (name: string, label: string, hint?: string): Option => ({ ...text(name, label, hint), form: 'json' })
const value = (name: string, label: string, hint?: string): Option => ({ ...text(name, label, hint), form: 'value' })
const number = (name: string, label: string, hint?: string): Option => ({ ...text(name, label, hint), form: 'number' })
const check = (name: string, label: string): Option => ({ ...text(name, label), form: 'check' })
const one = (name: string, label: string, words: readonly string[]): Option => ({ ...text(name, label), form: words })

const collection: Option = { name: 'collection', label: 'Collection', form: 'collection' }
const source = text('arraySource', 'List', 'A path: outputs.read.data')
const conditions = [
  json('conditions', 'Conditions', '[{"field": "trigger.total", "operator": ">", "value": 100}]'),
  one('operator', 'They hold', ['AND', 'OR']),
]
const rights = [
  check('executeAsAnonymous', 'With the rights of the public role'),
  check('bypassPermissions', 'With the rights of the platform (administrators)'),
]

const groups = { data: 'Data', flow: 'Flow', reckon: 'Reckon', outside: 'People and services' }

/** The settings of each kind of node, for forms. The rest of a node is edited as JSON. */
export const kinds: Readonly<Record<string, Kind>> = {
  trigger: { title: 'Trigger', group: groups.flow, about: 'Where it begins.', options: [] },
  service: {
    ...{ title: 'Rows', group: groups.data, about: 'Creates, reads, updates or deletes rows.' },
    options: [
      one('operation', 'Operation', ['create', 'read', 'update', 'delete']),
      collection,
      text('itemId', 'Id', 'Of the row: {{trigger.orderId}}'),
      json('data', 'Values', '{"state": "approved"}'),
      json('filter', 'Filter', '{"state": "new"}'),
      value('sort', 'Order'),
      value('fields', 'Fields'),
      number('limit', 'At most', 'Rows that are read; 100 unless given.'),
      ...rights,
    ],
  },
  stats: {
    ...{ title: 'Figures', group: groups.data, about: 'Counts or sums rows.' },
    options: [
      one('operation', 'Operation', ['count', 'sum', 'avg', 'min', 'max']),
      collection,
      text('field', 'Field'),
      value('groupBy', 'Grouped by'),
      json('filter', 'Filter'),
      check('bypassPermissions', 'With the rights of the platform (administrators)'),
    ],
  },
  file: {
    ...{ title: 'Files', group: groups.data, about: 'Looks up, lists or deletes files.' },
    options: [
      one('operation', 'Operation', ['info', 'list', 'delete']),
      text('fileId', 'File', 'Its id.'),
      json('filter', 'Filter'),
      number('limit', 'At most'),
      check('bypassPermissions', 'With the rights of the platform (administrators)'),
    ],
  },
  condition: { title: 'Condition', group: groups.flow, about: 'Goes on by true or by false.', options: conditions },
  loop: {
    ...{ title: 'Loop', group: groups.flow, about: 'Does something for each item of a list.' },
    options: [
      one('loopType', 'Over', ['array', 'count']),
      source,
      value('startIndex', 'From'),
      value('endIndex', 'Up to, without it'),
      number('maxIterations', 'At most', '1,000 unless given.'),
    ],
  },
  try: { title: 'Try', group: groups.flow, about: 'Goes on by catch where something fails.', options: [] },
  delay: {
    ...{ title: 'Delay', group: groups.flow, about: 'Waits, up to a year.' },
    options: [value('delay', 'Milliseconds')],
  },
  workflow: {
    ...{ title: 'Workflow', group: groups.flow, about: 'Runs another workflow.' },
    options: [
      text('workflowId', 'Workflow', 'Its id.'),
      check('passData', 'Hand on the data of the trigger'),
      json('dataMapping', 'Data'),
      check('waitForCompletion', 'Wait for its end'),
      number('timeout', 'Wait at most', 'Milliseconds.'),
    ],
  },
  respond: {
    ...{ title: 'Respond', group: groups.flow, about: 'Answers a webhook.' },
    options: [value('status', 'Status'), value('body', 'Body'), json('headers', 'Headers')],
  },
  filter: {
    ...{ title: 'Filter', group: groups.reckon, about: 'Keeps items of a list.' },
    options: [source, ...conditions],
  },
  aggregate: {
    ...{ title: 'Aggregate', group: groups.reckon, about: 'One value of a list.' },
    options: [
      source,
      one('operation', 'Operation', ['count', 'sum', 'average', 'min', 'max', 'first', 'last']),
      text('field', 'Field'),
    ],
  },
  transform: {
    ...{ title: 'Transform', group: groups.reckon, about: 'Makes an object of paths, or by a script.' },
    options: [
      one('transformType', 'By', ['mapping', 'script']),
      json('mapping', 'Mapping', '{"total": "outputs.sum.result"}'),
      { name: 'script', label: 'Script', form: 'lines' },
    ],
  },
  variable: {
    ...{ title: 'Variables', group: groups.reckon, about: 'Sets variables.' },
    options: [json('variables', 'Variables', '{"greeting": "Hello {{trigger.name}}"}')],
  },
  script: {
    ...{ title: 'Script', group: groups.reckon, about: 'Runs code (administrators).' },
    options: [{ name: 'script', label: 'Script', form: 'lines', hint: 'The body of an asynchronous function.' }],
  },
  http: {
    ...{ title: 'Request', group: groups.outside, about: 'Asks another server.' },
    options: [
      text('url', 'Address'),
      one('method', 'Method', ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']),
      json('headers', 'Headers'),
      value('body', 'Body'),
      number('timeout', 'Wait at most', 'Milliseconds.'),
      number('retries', 'Try again', 'Times, up to 10. After the last the node fails.'),
      number('retryDelay', 'Between them', 'Milliseconds.'),
    ],
  },
  email: {
    ...{ title: 'Mail', group: groups.outside, about: 'Sends a mail.' },
    options: [
      value('to', 'To', 'An address, or a JSON list of them.'),
      text('subject', 'Subject'),
      { name: 'body', label: 'Body', form: 'lines', hint: 'HTML; values of templates are escaped.' },
    ],
  },
  notification: {
    ...{ title: 'Notification', group: groups.outside, about: 'Tells a user.' },
    options: [
      value('userId', 'User', 'An id.'),
      text('title', 'Title'),
      { name: 'message', label: 'Message', form: 'lines' },
      text('type', 'Type'),
      json('data', 'Data'),
      ...rights,
    ],
  },
}

export const titleOf = (type: string): string => (Object.hasOwn(kinds, type) ? kinds[type]!.title : type)

/** A value as its control shows it. */
export function shownValue(form: Option['form'], stored: unknown): string {
  if (stored === undefined || stored === null) return ''
  if (typeof stored === 'string') return stored
  return JSON.stringify(stored, null, form === 'json' ? 2 : undefined)
}

/** The value of a text; undefined for none. @throws {Error} in words for the user who typed it */
export function readValue(form: Option['form'], typed: string): unknown {
  if (typed.trim() === '') return undefined
  const isTemplate = /^\s*\{\{[^{}]*\}\}\s*$/.test(typed)
  if (form === 'number' && !typed.includes('{{')) {
    if (!Number.isFinite(Number(typed))) throw new Error('This must be a number.')
    return Number(typed)
  }
  if (form === 'json' || form === 'value') {
    try {
      return JSON.parse(typed)
    } catch (error) {
      if (form === 'json' && !isTemplate) throw new Error(`This is no JSON: ${(error as Error).message}`)
    }
  }
  return typed
}

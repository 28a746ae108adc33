import { Check } from 'typebox/schema'
import type { Asked, Call, CallName } from '../../../clients/console-messages.ts'

/*
 * Reads what a frame says. It may be anything: the text is bounded before it is parsed, every member is of a known shape, and
 * no other member is let through.
 */

/** Characters. */
export const longestMessage = 500_000

/** A message that is not understood, with the number of its call where it has one. */
type Unread = { readonly problem: string; readonly id: number | null }

const closed = <Properties extends object>(
  properties: Properties,
  required: readonly (keyof Properties & string)[],
) => ({
  type: 'object',
  properties,
  required: [...required],
  additionalProperties: false,
})
const text = (maxLength: number) => ({ type: 'string', minLength: 1, maxLength })
const names = { type: 'array', items: text(300), maxItems: 200 }
const object = { type: 'object' }
// Of an address: what leads up in it, or out of its part, is no name.
const collection = { ...text(63), pattern: '^[^./\\\\%?#]+$' }
const id = { anyOf: [{ ...text(300), pattern: '^(?!\\.{1,2}$)' }, { type: 'number' }] }
const anything = {}

const listQuery = closed(
  {
    fields: names,
    filter: object,
    sort: names,
    search: { type: 'string', maxLength: 500 },
    limit: { type: 'integer', minimum: 0, maximum: 1000 },
    offset: { type: 'integer', minimum: 0 },
    count: { type: 'boolean' },
  },
  [],
)

const reportQuery = closed(
  {
    aggregate: object,
    groupBy: names,
    filter: object,
    having: object,
    sort: names,
    limit: { type: 'integer', minimum: 0, maximum: 1000 },
    timezone: text(100),
  },
  ['aggregate'],
)

/** THE list of calls, each with the shape of what it says. */
const calls: Readonly<Record<CallName, object>> = {
  'items.list': closed({ collection, query: listQuery }, ['collection', 'query']),
  'items.get': closed({ collection, id, fields: names }, ['collection', 'id']),
  'items.create': closed({ collection, item: object }, ['collection', 'item']),
  'items.update': closed({ collection, id, change: object }, ['collection', 'id', 'change']),
  'items.delete': closed({ collection, id }, ['collection', 'id']),
  'reports.run': closed({ collection, query: reportQuery }, ['collection', 'query']),
  'value.set': closed({ value: anything }, ['value']),
  resize: closed({ height: { type: 'number', minimum: 0, maximum: 100_000 } }, ['height']),
  // Of the console, whatever a browser makes of slashes; never an address of another host.
  navigate: closed({ to: { ...text(2000), pattern: '^/([\\w~.-][^\\\\\\s]*)?$' } }, ['to']),
  palette: closed({}, []),
  toast: closed({ title: text(200), text: text(500) }, ['title']),
}

const pong = closed({ pong: { const: true } }, ['pong'])
const numbered = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER }

/** The message of a frame, or the fault in it. Never throws. */
export function readMessage(data: unknown): Asked | Unread {
  if (typeof data !== 'string') return unread('a message must be JSON text')
  if (data.length > longestMessage) return unread(`a message has at most ${longestMessage} characters`)
  let said: unknown
  try {
    said = JSON.parse(data)
  } catch {
    return unread('a message must be JSON text')
  }
  if (typeof said !== 'object' || said === null) return unread('a message must be an object')
  if (Check(pong, said)) return said as Asked
  const { id, call } = said as { id?: unknown; call?: unknown }
  if (!Check(numbered, id)) return unread('a call must have a whole number as its id')
  const number = id as number
  if (typeof call !== 'string' || !Object.hasOwn(calls, call)) return unread('there is no such call', number)
  const args = calls[call as CallName]
  const whole = closed({ id: numbered, call: { const: call }, args }, ['id', 'call', 'args'])
  return Check(whole, said) ? (said as Call & { id: number }) : unread(`this is not how ${call} is called`, number)
}

const unread = (problem: string, id: number | null = null): Unread => ({ problem, id })

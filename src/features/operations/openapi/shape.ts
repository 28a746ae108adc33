import type { TSchema } from 'typebox'
import type { Representing } from '../../../http/shapes.ts'
import { oncePer } from '../../../language/once.ts'

/** A JSON Schema, or a part of the document. */
export type Json = { [member: string]: unknown }

/** The replacement for a collection's rows in the shapes of its routes. */
export type Stand = (represents: NonNullable<Representing['represents']>) => Json

/** Annotations that mean nothing to others. */
const own: ReadonlySet<string> = new Set(['refusal', 'lenient', 'unchecked', 'represents', '$id'])
/** Formats that no one else knows: programs would warn of them, or refuse the shape. */
const ownFormats: ReadonlySet<unknown> = new Set(['unicode'])
const ofSchemas: ReadonlySet<string> = new Set([
  'items',
  'additionalProperties',
  'not',
  'if',
  'then',
  'else',
  'contains',
  'contentSchema',
])
const ofLists: ReadonlySet<string> = new Set(['anyOf', 'allOf', 'oneOf', 'prefixItems'])
const ofMaps: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions'])

/**
 * A declared shape as the document has it: without our annotations, and where `stand` is given with it in place of what
 * represents rows.
 */
export function schemaOf(shape: TSchema, stand?: Stand): Json {
  return plain(shape as unknown as Json, stand)
}

/** Shapes that do not represent rows are the same for every collection: two hundred of them share one. */
function plain(shape: Json, stand: Stand | undefined): Json {
  return stand === undefined || !mentionsRows(shape) ? plainShared(shape) : plainOf(shape, stand)
}

const plainShared = oncePer((shape: Json): Json => plainOf(shape, undefined))

const mentionsRows = oncePer(
  (shape: Json): boolean =>
    (shape as Representing).represents !== undefined ||
    Object.values(shape).some((part) => part !== null && typeof part === 'object' && mentionsRows(part as Json)),
)

function plainOf(shape: Json, stand: Stand | undefined): Json {
  const { represents } = shape as Representing
  if (represents !== undefined && stand !== undefined) return stand(represents)
  // A schema that an extension shares with its routes by a name of its own is not in the document.
  if (typeof shape.$ref === 'string') return {}
  const schema: Json = {}
  for (const [keyword, value] of Object.entries(shape)) {
    if (own.has(keyword) || typeof value === 'function' || value === undefined) continue
    if (keyword === 'format' && ownFormats.has(value)) continue
    if (keyword === 'patternProperties') schema.additionalProperties = ofRecord(value as Json, stand)
    else schema[keyword] = partOf(keyword, value, stand)
  }
  return schema
}

function partOf(keyword: string, value: unknown, stand: Stand | undefined): unknown {
  if (ofLists.has(keyword) || Array.isArray(value))
    return ofLists.has(keyword) || keyword === 'items' ? (value as Json[]).map((one) => plain(one, stand)) : value
  if (value === null || typeof value !== 'object') return value
  if (ofSchemas.has(keyword)) return plain(value as Json, stand)
  if (!ofMaps.has(keyword)) return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member as Json, stand)]))
}

/** A record has one pattern, which all of its names match. */
function ofRecord(patterns: Json, stand: Stand | undefined): Json {
  return plain((Object.values(patterns)[0] ?? {}) as Json, stand)
}

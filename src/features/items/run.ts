import type { Field } from '../../catalog/catalog.ts'
import { parameterType, readValue } from '../../catalog/values.ts'
import { columnOf, requiredFieldMissing, sqlState } from '../../db/errors.ts'
import { rawQuery, type Tx } from '../../db/sql.ts'
import { type Actor, actorJson, type DomainEvent } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import type { Writer } from './context.ts'
import type { Written } from './hooking.ts'
import type { Cell } from './payload.ts'
import { relationalError, unknownItem } from './problems.ts'
import type { Write } from './statements.ts'

/** One writer's writes inside a transaction. */
export type Run = { readonly rt: Runtime; readonly writer: Writer; readonly tx: Tx; readonly scope: Scope }

/** An open transaction that other writers may take part in, and what is to follow from it. */
export type Scope = {
  readonly tx: Tx
  /** Whom the log names for all that is written in it. */
  readonly actor: Actor
  /** What hooks are to hear of when it has committed. */
  readonly written: Written[]
  readonly events: DomainEvent[]
  /** Its connection belongs to others now. */
  isOver: boolean
}

/** Where what a statement writes stands in the request. */
export type Place = {
  /** Put before the names of fields. */
  readonly label?: string
  /** Names of the relations that were given by an id, by the name of the foreign key. */
  readonly aliases?: ReadonlyMap<string, string>
  /** The rows of one statement, each where it stands; without them all is one row. */
  readonly rows?: readonly PlacedRow[]
}

type PlacedRow = { readonly label: string; readonly cells: readonly Cell[] }

/** The place of rows that are written by one statement. */
export function placeOf(trees: readonly (PlacedRow & Pick<Place, 'aliases'>)[]): Place {
  const [first] = trees
  if (first === undefined || trees.length === 1) return first ?? {}
  // Which of the rows has a reference that leads nowhere the database does not say.
  return { ...(first.aliases && { aliases: first.aliases }), rows: trees }
}

/** Runs a statement of statements.ts; what it is refused for is named by its place in the request. */
export async function runWrite<Answer = { id: string }>(
  { writer, tx }: Pick<Run, 'writer' | 'tx'>,
  { text, values }: Write,
  place: Place = {},
): Promise<readonly Answer[]> {
  try {
    return await tx.any<Answer>(rawQuery(text, [actorJson(writer.actor), ...values]))
  } catch (error) {
    throw placed(error, place)
  }
}

/**
 * The answer to a reference that was refused, by `svc_refer`, whose message is the relation, or by the database's
 * constraint for a relation that the payload names (spec/items.md §10), and to a value that only the database
 * missed (a default that is null, a user where nobody is signed in). Every other error stays what it is.
 */
export function placed(error: unknown, place: Place): unknown {
  const { label = '', aliases } = place
  const relation = refusedRelation(error, aliases)
  if (relation !== undefined) return relationalError([{ field: `${label}${relation}`, message: unknownItem('read') }])
  const column = sqlState(error) === '23502' ? columnOf(error) : undefined
  return column === undefined ? error : requiredFieldMissing(`${labelOf(place, column)}${column}`)
}

/** Of several rows the first that says nothing of the column: only what was not given can be missing. */
function labelOf({ label = '', rows = [] }: Place, column: string): string {
  return rows.find(({ cells }) => !cells.some(({ field }) => field.name === column))?.label ?? label
}

function refusedRelation(error: unknown, aliases: Place['aliases']): string | undefined {
  const state = sqlState(error)
  if (state === 'SV400') return causeOf(error).message
  if (state !== '23503' || aliases === undefined) return undefined
  // `Key (author_Id)=(…) is not present in table …`, in whatever language the server speaks.
  const column = /\(([^)]+)\)=/.exec(causeOf(error).detail ?? '')?.[1]
  return column === undefined ? undefined : aliases.get(column.replaceAll('"', ''))
}

/** The database's own error: slonik wraps it. */
function causeOf(error: unknown): { readonly message?: string; readonly detail?: string } {
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  return typeof code === 'string' || cause === undefined ? (error as object) : causeOf(cause)
}

/** A column with the key of another row, as a cell. */
export function keyCell(field: Field, raw: unknown): Cell {
  const value = raw === null ? null : readValue(raw, field, field.name).value
  return { field, value, pgType: parameterType(field) }
}

/** Later cells of a column replace earlier ones. */
export function withCells(cells: readonly Cell[], more: readonly Cell[]): readonly Cell[] {
  if (more.length === 0) return cells
  return [...new Map([...cells, ...more].map((cell) => [cell.field.name, cell])).values()]
}

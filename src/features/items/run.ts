import type { Field } from '../../catalog/catalog.ts'
import { sqlState } from '../../db/errors.ts'
import { rawQuery, type Tx } from '../../db/sql.ts'
import { type Actor, actorJson, type DomainEvent } from '../../events/types.ts'
import { parameterType, readValue } from '../../query/values.ts'
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

/** Where the references of a statement stand in the request. */
export type ReferencePlace = { readonly label?: string; readonly aliases?: ReadonlyMap<string, string> }

/** Runs a statement of statements.ts; a reference that leads nowhere is named by its relation. */
export async function runWrite<Answer = { id: string }>(
  { writer, tx }: Pick<Run, 'writer' | 'tx'>,
  { text, values }: Write,
  place: ReferencePlace = {},
): Promise<readonly Answer[]> {
  try {
    return await tx.any<Answer>(rawQuery(text, [actorJson(writer.actor), ...values]))
  } catch (error) {
    throw namedReference(error, place)
  }
}

/**
 * The answer to a reference that was refused: by `svc_refer`, whose message is the relation, or by the database's
 * constraint for a relation that the payload names (spec/items.md §10). Every other error stays what it is.
 */
export function namedReference(error: unknown, { label = '', aliases }: ReferencePlace): unknown {
  const relation = refusedRelation(error, aliases)
  if (relation === undefined) return error
  return relationalError([{ field: `${label}${relation}`, message: unknownItem('read') }])
}

function refusedRelation(error: unknown, aliases: ReferencePlace['aliases']): string | undefined {
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

import { hash } from 'node:crypto'
import pg from 'pg'

/** Members of pg's connections and queries that pg does not declare. */
type Connection = {
  readonly submittedNamedStatements: Record<string, string>
  parse(message: object): void
  bind(message: object): void
  execute(message: object): void
}
type Inner = {
  name: string | undefined
  prepare(connection: Connection): void
  handleDataRow(message: unknown): void
  handleCommandComplete(message: unknown, connection: Connection): void
  handleError(error: Error, connection: Connection): void
}

/**
 * A statement together with settings that it runs under. Both are sent at once and before the Sync that ends a
 * transaction, so they are one transaction, of one session, whatever lies in between; and they cost one round trip. For `client.query()`.
 */
export function withSettings(
  settings: string,
  statement: pg.QueryConfig,
  callback: (error: Error | undefined, result: pg.QueryResult) => void,
): pg.Submittable {
  // Also without values: only the extended protocol can hold both together.
  const query = new pg.Query({ ...statement, queryMode: 'extended' } as pg.QueryConfig, callback as never)
  const inner = query as unknown as Inner
  const { name } = statement
  const { prepare, handleDataRow, handleCommandComplete, handleError } = inner
  let isSet = false
  Object.assign(query, {
    prepare: (connection: Connection) => {
      connection.parse({ text: settings, name: '' })
      connection.bind({})
      connection.execute({})
      prepare.call(query, connection)
      // The first answer to a Parse is not about the statement of this name.
      inner.name = undefined
    },
    handleDataRow: (message: unknown) => {
      if (isSet) handleDataRow.call(query, message)
    },
    handleCommandComplete: (message: unknown, connection: Connection) => {
      if (isSet) return handleCommandComplete.call(query, message, connection)
      isSet = true
      inner.name = name
    },
    handleError: (error: Error, connection: Connection) => {
      if (!isSet && name !== undefined) delete connection.submittedNamedStatements?.[name]
      handleError.call(query, error, connection)
    },
  })
  return query
}

const names = new Map<string, string>()
const namesAtMost = 2000

/**
 * The name that a statement is prepared under: a hash of its text, which the types of its parameters are part of, as
 * casts. So a name stands for the same text whichever process has given it, and whoever meets it on a connection that
 * others use as well gets their own statement or an error, never another one. PostgreSQL cuts names at 63 bytes.
 */
export function statementName(text: string): string {
  let name = names.get(text)
  if (name === undefined) {
    if (names.size >= namesAtMost) names.delete(names.keys().next().value!)
    // 192 bits.
    name = `svc_${hash('sha256', text, 'base64url').slice(0, 32)}`
    names.set(text, name)
  }
  return name
}

/** One statement of a text, as PostgreSQL's own parser reads it. */
export type ParsedStatement = {
  readonly text: string
  /** The kind of the statement, e.g. `AlterTableStmt`, and its tree. */
  readonly kind: string
  readonly tree: ParseTree
}

/** A node of PostgreSQL's parse tree; absent members are zero, false or none. */
// biome-ignore lint/suspicious/noExplicitAny: the tree has some hundred kinds of nodes, and the parser no types for them
export type ParseTree = { readonly [member: string]: any }

export class SqlSyntaxError extends Error {}

/** Splits and parses a text of one or more statements with the parser of PostgreSQL 18. Throws {@link SqlSyntaxError}. */
export async function parseSql(text: string): Promise<readonly ParsedStatement[]> {
  const bytes = Buffer.from(text, 'utf8')
  const { stmts = [] } = await parsed(text)
  return stmts.map(({ stmt, stmt_location: from = 0, stmt_len: length }) => {
    const [kind = '', tree = {}] = Object.entries(stmt ?? {})[0] ?? []
    const end = length === undefined ? bytes.length : from + length
    return { text: bytes.subarray(from, end).toString('utf8').trim(), kind, tree: tree as ParseTree }
  })
}

// Loaded with the first text: it is a WebAssembly build of PostgreSQL's parser, and most processes never lint.
async function parsed(text: string): Promise<{ stmts?: StatementNode[] }> {
  const { parse, SqlError } = await import('libpg-query')
  try {
    return (await parse(text)) as { stmts?: StatementNode[] }
  } catch (error) {
    if (error instanceof SqlError) throw new SqlSyntaxError(error.message, { cause: error })
    throw error
  }
}

/** Locations are in bytes. */
type StatementNode = { readonly stmt?: object; readonly stmt_location?: number; readonly stmt_len?: number }

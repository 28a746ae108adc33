import type { ParseTree } from '../../../adapters/sql-parser.ts'

/** The facts that the linter needs about a script's database. */
export type LintSubject = {
  /** Whether the script runs in one transaction, as it does unless it opts out. */
  readonly inTransaction: boolean
  /** The column's present type in PostgreSQL's words, e.g. `character varying(255)`; undefined where there is none. */
  columnType(table: string, column: string): string | undefined
  /** Whether a validated check constraint says already that the column is not null. */
  isCheckedNotNull(table: string, column: string): boolean
  /** The dependents of a table, or of one of its columns: `field title of collection book`, … */
  usesOf(table: string, column?: string): readonly string[]
}

/** A script while it is read. */
export type LintedScript = { readonly subject: LintSubject; readonly created: Set<string> }

type Lock = 'none' | 'ROW EXCLUSIVE' | 'SHARE' | 'SHARE ROW EXCLUSIVE' | 'ACCESS EXCLUSIVE'

type Rule = {
  /** The strongest lock on the table while the statement runs. */
  readonly lock: Lock
  readonly why: string
  readonly safeWay: string
}

/** Every rule. Locks and rewrites are proven against PostgreSQL in `test/integration/migrations-lint.test.ts`. */
export const rules = {
  syntax: { lock: 'none', why: 'The statement does not parse.', safeWay: 'Mend the statement.' },
  'index-not-concurrent': {
    lock: 'SHARE',
    why: 'Writes wait until the whole table is indexed.',
    safeWay: 'CREATE INDEX CONCURRENTLY, in a script that runs without a transaction.',
  },
  'concurrent-in-transaction': {
    lock: 'none',
    why: 'CONCURRENTLY is refused inside a transaction.',
    safeWay: 'Let the script run without a transaction: export const transaction = false.',
  },
  'drop-index': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Reads and writes of the table wait for it, and it waits for the longest of them.',
    safeWay: 'DROP INDEX CONCURRENTLY, in a script that runs without a transaction.',
  },
  'add-required-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Without a default it fails on a table with rows, and old processes that insert fail afterwards.',
    safeWay:
      'Add the column with a constant default, or nullable, fill it in batches, then set it NOT NULL by a validated check.',
  },
  'volatile-default': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'A default that differs by row rewrites the table; reads and writes wait.',
    safeWay: 'Add the column without the default, set the default afterwards, fill existing rows in batches.',
  },
  'stored-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Serial, identity and stored generated columns rewrite the table; reads and writes wait.',
    safeWay: 'Add a plain column, fill it in batches, then attach the sequence or a trigger.',
  },
  'set-not-null': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The whole table is read while reads and writes wait.',
    safeWay:
      'ADD CONSTRAINT … CHECK (column IS NOT NULL) NOT VALID, VALIDATE CONSTRAINT, then SET NOT NULL and drop the check.',
  },
  'type-change': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The table and its indexes are rewritten; reads and writes wait.',
    safeWay: 'Add a second column, write both, fill it in batches, then read the new one and drop the old.',
  },
  'add-foreign-key': {
    lock: 'SHARE ROW EXCLUSIVE',
    why: 'Every row is checked while writes of both tables wait.',
    safeWay: 'ADD CONSTRAINT … NOT VALID, then VALIDATE CONSTRAINT in a later script.',
  },
  'add-check': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Every row is checked while reads and writes wait.',
    safeWay: 'ADD CONSTRAINT … NOT VALID, then VALIDATE CONSTRAINT in a later script.',
  },
  'add-unique': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Its index is built while reads and writes wait.',
    safeWay: 'CREATE UNIQUE INDEX CONCURRENTLY, then ADD CONSTRAINT … USING INDEX.',
  },
  'rename-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Processes that know the old name fail from then on.',
    safeWay: 'Add the new column, write both, move the readers, drop the old one in a later release.',
  },
  'rename-table': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Processes that know the old name fail from then on.',
    safeWay: 'Make the new table and a view of the old name, or rename the collection through the schema API.',
  },
  'drop-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Its values are gone, and processes that still name it fail.',
    safeWay: 'Remove every use, release, and drop it in a later migration.',
  },
  'drop-table': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Its rows are gone, and processes that still name it fail.',
    safeWay: 'Remove every use, release, and drop it in a later migration.',
  },
  truncate: {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Reads and writes wait, and the log cannot say which rows are gone.',
    safeWay: 'Delete in batches.',
  },
  'lock-table': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Other users of the table wait until the transaction ends.',
    safeWay: 'Lock single rows, or take an advisory lock.',
  },
  'vacuum-full': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The table is rewritten; reads and writes wait.',
    safeWay: 'Plain VACUUM; to give space back, rewrite in batches.',
  },
  cluster: {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The table is rewritten; reads and writes wait.',
    safeWay: 'An index that covers the query.',
  },
  reindex: {
    lock: 'SHARE',
    why: 'Writes wait until the indexes are built again.',
    safeWay: 'REINDEX CONCURRENTLY, in a script that runs without a transaction.',
  },
  'set-persistence': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'SET LOGGED, SET UNLOGGED and SET TABLESPACE rewrite the table; reads and writes wait.',
    safeWay: 'Copy into a new table in batches and swap.',
  },
  'whole-table-write': {
    lock: 'ROW EXCLUSIVE',
    why: 'Every row is locked and written twice in one transaction; writers of these rows wait for its end.',
    safeWay: 'Write batches of some thousand rows, each in a transaction of its own.',
  },
} as const satisfies Record<string, Rule>

type RuleName = keyof typeof rules

export type LintFinding = Rule & { readonly rule: RuleName; readonly object: string }

/** A finding about a table or column; what uses it is named where that is why. */
export function objectOf(rule: RuleName, object: string, uses: readonly string[] = []): LintFinding {
  const { lock, why, safeWay } = rules[rule]
  return { rule, object, lock, why: uses.length === 0 ? why : `${why} In use by: ${uses.join(', ')}.`, safeWay }
}

/** The name of a table in a parse tree. */
export const tableOf = ({ relname }: ParseTree): string => relname

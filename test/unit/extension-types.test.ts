import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { expect, it } from 'vitest'

/** Extensions as their authors write them, against `daybook/extensions`. */

const root = join(import.meta.dirname, '../..')

/** What the compiler says of files, by their names, with the options that the checkout has. */
function problemsIn(files: Readonly<Record<string, string>>): string[] {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: [] }, ts.sys, root)
  const given: ts.CompilerOptions = { ...options, noEmit: true, incremental: false, tsBuildInfoFile: undefined }
  const texts = new Map(Object.entries(files).map(([name, text]) => [join(root, 'extensions', name), text]))
  const host = ts.createCompilerHost(given)
  const { fileExists, readFile, getSourceFile } = host
  host.fileExists = (path) => texts.has(path) || fileExists(path)
  host.readFile = (path) => texts.get(path) ?? readFile(path)
  host.getSourceFile = (path, version, ...rest) => {
    const text = texts.get(path)
    return text === undefined ? getSourceFile(path, version, ...rest) : ts.createSourceFile(path, text, version)
  }
  const program = ts.createProgram([...texts.keys()], given, host)
  return [...texts.keys()]
    .flatMap((path) => {
      const file = program.getSourceFile(path)
      return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)]
    })
    .map(({ file, start, messageText }) => {
      const line = file!.getLineAndCharacterOfPosition(start!).line + 1
      return `${file!.fileName.slice(join(root, 'extensions').length + 1)}:${line} ${ts.flattenDiagnosticMessageText(messageText, ' ')}`
    })
}

it('the TypeScript of the pages compiles', () => {
  const blocks = ['extensions.md', 'console-extensions.md'].flatMap((page) =>
    [...readFileSync(join(root, 'docs', page), 'utf8').matchAll(/^```ts[^\n]*\n(.*?)^```$/gms)].map(
      ([, text], at) => [`${page}-${at}.ts`, text!] as const,
    ),
  )
  expect(blocks.length).toBeGreaterThan(3)
  expect(problemsIn(Object.fromEntries(blocks))).toEqual([])
})

it('a hook has the members of its event, and no others', () => {
  const text = `import type { HookContext, HookExtension, HookRow } from 'daybook/extensions'
    type Order = { id: string; total: number; state: string | null }
    const register: HookExtension = (hooks) => {
      hooks.registerHook('order', 'items.create', async ({ data, transaction, db, accountability, collection }) => {
        await transaction.query('select 1')
        await db.query('select 1')
        return data.total > 1000 && accountability?.role?.name === collection ? { data: { ...data, state: 'new' } } : undefined
      })
      hooks.registerHook('order', 'items.update.before', ({ id, data, previousDocument, transaction }) => {
        if (data.total < previousDocument.total) throw new Error(String(id) + typeof transaction)
      })
      hooks.registerHook('*', 'items.delete', ({ id, document, transaction }) => void [id, document.total, transaction])
      hooks.registerHook('*', 'items.create.after', ({ id, document }) => void [id, document.total])
      hooks.registerHook('*', 'items.update.after', ({ document, previousDocument }) => void [document, previousDocument])
      hooks.registerHook('*', 'items.read', ({ query }) => ({ query: { ...query, limit: 1 } }))
      hooks.registerHook('*', 'items.read.one.before', ({ query, id }) => ({ query: { ...query, id } }))
      hooks.registerHook('*', 'items.read.after', ({ query, result }) => void [query, result.data[0]?.total, result.totalCount])
      hooks.registerHook('*', 'items.read.one.after', ({ query, id, document }) => void [query, id, document.total])
      for (const event of ['items.create', 'items.update'] as const) hooks.registerHook('*', event, ({ data }) => ({ data }))
      hooks.registerHook('order', 'items.create.after', ({ document }: HookContext<'items.create.after', Order>) => document.total.toFixed())
      hooks.registerHook<'items.update', Order>('order', 'items.update', ({ data }) => data.total?.toFixed())
      const ofAny = ({ collection }: HookContext) => collection
      hooks.registerHook('order', 'items.read', ofAny)
      const row: HookRow = { anything: 1 }
      void row.anything
      // @ts-expect-error: there is no such event
      hooks.registerHook('order', 'items.craete', () => {})
      // @ts-expect-error: only what comes before has another way to be written
      hooks.registerHook('order', 'items.create.after.before', () => {})
      // @ts-expect-error: the document says it
      hooks.registerHook('order', 'items.create.after', ({ data }) => data)
      // @ts-expect-error: the change is over
      hooks.registerHook('order', 'items.update.after', ({ transaction }) => transaction)
      // @ts-expect-error: it is not there yet
      hooks.registerHook('order', 'items.create', ({ previousDocument }) => previousDocument)
      // @ts-expect-error: a list has no id
      hooks.registerHook('order', 'items.read', ({ id }) => id)
      // @ts-expect-error: no field of an order
      hooks.registerHook<'items.update', Order>('order', 'items.update', ({ data }) => data.totl)
      // @ts-expect-error: it has happened
      hooks.registerHook('order', 'items.delete.after', (context) => { context.document = {} })
    }
    export default register`
  expect(problemsIn({ 'own.ts': text })).toEqual([])
})

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
const types = join(root, 'src/events/types.ts')
const reactions = join(root, 'src/events/reactions.ts')

it('an event type without a decision does not compile', () => {
  expect(problemsWith((source) => source)).toEqual([])
  const withNewEvent = (source: string) =>
    source.replace('export type EventData = {', `export type EventData = {\n  'moon.landed': { crew: number }\n`)
  expect(problemsWith(withNewEvent)).toEqual([expect.stringContaining(`Property '"moon.landed"' is missing`)])
})

/** Most of the time of a compilation is reading files, and all but one are the same each time. */
const parsed = new Map<string, ts.SourceFile>()

/** What the compiler says of the reactions when the list of events is another one. */
function problemsWith(change: (source: string) => string): string[] {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: [reactions] }, ts.sys, root)
  const host = ts.createCompilerHost(options)
  const { readFile, getSourceFile } = host
  host.readFile = (file) => (file === types ? change(readFileSync(types, 'utf8')) : readFile(file))
  host.getSourceFile = (file, ...how) => {
    const source = file === types ? undefined : parsed.get(file)
    if (source !== undefined) return source
    const read = getSourceFile(file, ...how)
    if (read !== undefined) parsed.set(file, read)
    return read
  }
  const program = ts.createProgram([reactions], options, host)
  const source = program.getSourceFile(reactions)
  return program
    .getSemanticDiagnostics(source)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))
}

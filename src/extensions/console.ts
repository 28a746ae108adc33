import { lstatSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fits, Type } from '../adapters/typebox.ts'
import { broken, defaultExport, type Folder } from './folders.ts'
import type { ConsoleExtension } from './types.ts'

/** An extension of the console, whose files are read as they are asked for. */
export type LoadedConsole = Folder & {
  /** Its part of addresses: `svc-console-prices` is `prices`. */
  readonly id: string
  readonly definition: ConsoleExtension
  /** The directory of what browsers may load; nothing beside it is ever sent. */
  readonly files: string
}

const Names = Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 200 })))
const closed = { additionalProperties: false }
const Framed = Type.Object({ file: Type.String() }, closed)

/** By member, so that a refusal names the one that is wrong. */
const members = {
  title: Type.String({ minLength: 1, maxLength: 60 }),
  page: Type.Optional(Framed),
  editors: Type.Optional(Type.Record(Type.String(), Framed)),
  collections: Type.Optional(Type.Object({ read: Names, write: Names }, closed)),
  roles: Names,
}

const words = 'must export { title, page, editors, collections, roles } by default'

/** @throws {ConfigError} of one line that names the file and what is wrong in it */
export async function loadConsole(folder: Folder): Promise<LoadedConsole> {
  const { file, name } = folder
  const exported = await defaultExport(folder)
  if (typeof exported !== 'object' || exported === null) throw broken(file, words)
  const unknown = Object.keys(exported).find((member) => !Object.hasOwn(members, member))
  if (unknown !== undefined) throw broken(file, `${words}, and nothing called ${JSON.stringify(unknown)}`)
  for (const [member, shape] of Object.entries(members)) {
    const value = (exported as Record<string, unknown>)[member]
    const isLeftOut = value === undefined && member !== 'title'
    if (!isLeftOut && !fits(shape, value)) throw broken(file, `has a wrong ${member} (docs/console-extensions.md)`)
  }
  const definition = exported as ConsoleExtension
  const id = name.slice('svc-console-'.length)
  if (!isName(id)) throw broken(dirname(file), 'must be named svc-console- and lowercase letters, digits and hyphens')
  const files = join(dirname(file), 'files')
  if (lstatSync(files, { throwIfNoEntry: false })?.isDirectory() !== true) throw broken(file, 'has no folder files')
  checkFrames(file, files, definition)
  return { ...folder, id, definition, files }
}

function checkFrames(file: string, files: string, { page, editors = {} }: ConsoleExtension): void {
  const wrong = Object.keys(editors).find((editor) => !isName(editor))
  if (wrong !== undefined) throw broken(file, `has an editor ${JSON.stringify(wrong)}, which cannot be a name`)
  const frames = [...(page === undefined ? [] : [page]), ...Object.values(editors)]
  if (frames.length === 0) throw broken(file, 'has neither a page nor editors')
  for (const { file: frame } of frames) {
    const isThere = isServed(frame) && statSync(join(files, frame), { throwIfNoEntry: false })?.isFile() === true
    if (!isThere || !frame.endsWith('.html')) throw broken(file, `names ${frame}, which is no page in its folder files`)
  }
}

const isName = (text: string): boolean => /^[a-z0-9][a-z0-9-]{0,62}$/.test(text)

/** Whether a path names what may be sent: plain names, of which none begins with a dot. */
export const isServed = (path: string): boolean =>
  path.length <= 400 && path.split('/').every((part) => /^[\w-][\w.-]{0,99}$/.test(part))

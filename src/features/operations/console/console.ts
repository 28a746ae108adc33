import { readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { AppError } from '../../../errors.ts'

/** A file of the console. Its name holds the hash of its content, so what was read once stays true. */
type BuiltFile = { readonly type: string; readonly plain: Buffer; readonly compressed: Buffer }

/** Where `npm run build:console` puts the console. */
const built = join(import.meta.dirname, '../../../../console/dist')

/** The page, read anew each time: a build may have replaced it. @throws {AppError} 503 where there is none */
export async function builtPage(): Promise<Buffer> {
  const page = await readBuilt('index.html')
  if (page === undefined) throw new AppError(503, 'The console is not built here: run npm run build:console')
  return page
}

const types: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.woff2': 'font/woff2',
}

const kept = new Map<string, BuiltFile>()

/** @throws {AppError} 404 for what the console is not made of, 503 where it is not built */
export async function builtFile(name: string): Promise<BuiltFile> {
  const known = kept.get(name)
  if (known !== undefined) return known
  const type = types[extname(name)]
  const plain = type !== undefined && /^[\w.-]+$/.test(name) ? await readBuilt(join('assets', name)) : undefined
  if (type === undefined || plain === undefined) {
    await builtPage()
    throw new AppError(404, 'Not found')
  }
  const file = { type, plain, compressed: await promisify(gzip)(plain) }
  kept.set(name, file)
  return file
}

async function readBuilt(name: string): Promise<Buffer | undefined> {
  try {
    return await readFile(join(built, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

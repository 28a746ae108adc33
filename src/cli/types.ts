import { existsSync } from 'node:fs'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { loadEnv, parseConfig } from '../config/config.ts'
import { AppError } from '../errors.ts'
import { catalogOfImport, typescriptOf } from '../features/data/schemas/schemas.ts'
import { makeDirectory } from '../language/directories.ts'
import { withoutLastSlashes } from '../language/text.ts'
import { type Command, UsageError } from './command.ts'
import { withRuntime } from './installation.ts'

export const usage = `Usage: daybook types [--out FILE]
  writes the collections as TypeScript, to standard output or FILE; from
    the database of this installation,
    --url URL --token TOKEN    a server; the token of an administrator, or DAYBOOK_TOKEN
    --file FILE                definitions, as GET /schemas-export gives them
  --check                      writes nothing; exit code 3 if FILE is out of date
  --watch                      writes again whenever the collections change
`

const options = {
  url: { type: 'string' },
  token: { type: 'string' },
  file: { type: 'string' },
  out: { type: 'string' },
  check: { type: 'boolean' },
  watch: { type: 'boolean' },
} as const

const watchMs = 1000
const isStale = 3

/** Gives the types as they are now; undefined where they are those that it gave before. */
type DefinitionSource = () => Promise<string | undefined>

export const run: Command = async (args) => {
  const { values } = parseArgs({ args: [...args], options })
  const { out, check, watch, url, file } = values
  if ((check && (out === undefined || watch)) || (watch && out === undefined) || (url && file) || (watch && file))
    throw new UsageError(usage)
  const use = (source: DefinitionSource) => (check ? compare(source, out!) : write(source, out, watch))
  if (url !== undefined) return use(serverSource(url, values.token ?? process.env.DAYBOOK_TOKEN))
  if (file !== undefined) return use(fileSource(file))
  let code = 0
  await withRuntime(async ({ catalog }) => {
    code = await use(changedOnly(async () => typescriptOf(await catalog.reloadIfStale())))
  })
  return code
}

async function compare(source: DefinitionSource, out: string): Promise<number> {
  const wanted = await source()
  if (existsSync(out) && (await readFile(out, 'utf8')) === wanted) return 0
  process.stderr.write(`${out} is not what the collections are now: run daybook types --out ${out}\n`)
  return isStale
}

async function write(source: DefinitionSource, out: string | undefined, watch: boolean | undefined): Promise<number> {
  do {
    const text = await source()
    if (text === undefined) await delay(watchMs)
    else if (out === undefined) process.stdout.write(text)
    else {
      // A compiler that runs meanwhile reads the old file or the new one.
      const draft = `${out}.${process.pid}.tmp`
      await makeDirectory(dirname(out))
      await writeFile(draft, text)
      await rename(draft, out).catch(async (error: unknown) => {
        await rm(draft)
        throw error
      })
      process.stderr.write(`wrote ${out}\n`)
    }
  } while (watch)
  return 0
}

function changedOnly(read: () => Promise<string>): DefinitionSource {
  let last: string | undefined
  return async () => {
    const text = await read()
    if (text === last) return undefined
    last = text
    return text
  }
}

function fileSource(file: string): DefinitionSource {
  return async () => {
    const json = parsed(file, await readFile(file, 'utf8'))
    const config = parseConfig(loadEnv(process.cwd(), process.env), { allowMissingSecret: true })
    return typescriptOf(catalogOfImport(config, Array.isArray(json) ? { schemas: json } : json))
  }
}

function parsed(file: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new UsageError(`${file} is not JSON: ${(error as Error).message}`)
  }
}

function serverSource(url: string, token: string | undefined): DefinitionSource {
  if (!URL.canParse(url)) throw new UsageError(`--url: ${url} is no address of a server, such as https://api.example`)
  let tag: string | undefined
  return async () => {
    const response = await answerOf(`${withoutLastSlashes(url)}/schemas-types`, {
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(tag !== undefined && { 'if-none-match': tag }),
      },
    })
    if (response.status === 304) return undefined
    const text = await response.text()
    if (!response.ok) throw new UsageError(`${url} answered ${response.status}: ${messageIn(text)}`)
    tag = response.headers.get('etag') ?? undefined
    return text
  }
}

async function answerOf(address: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(address, options)
  } catch (error) {
    const { cause } = error as { cause?: { code?: string; message?: string } }
    throw new AppError(502, `${address} does not answer: ${cause?.code ?? cause?.message ?? String(error)}`)
  }
}

function messageIn(body: string): string {
  try {
    return JSON.parse(body).error.message
  } catch {
    return body.slice(0, 200)
  }
}

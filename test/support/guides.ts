import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'

/**
 * The guides of docs/, as a reader would follow them. A fenced block is
 *
 * - ` ```ini run `: variables of the server, as in `.env`;
 * - ` ```sh start `: how the server is started, with the variables of a file that is copied to `.env`;
 * - ` ```js file=watch.mjs `: a file that the reader saves before the server starts;
 * - ` ```sh run `: commands of one bash session per page. Lines that begin with `# ` are what the command above them prints;
 * - ` ```http run `: a request, where `{{NAME}}` is a variable of that session, and from the line `HTTP/1.1` on its answer.
 *
 * `…` in what is printed stands for anything, and white space does not count.
 */

const root = resolve(import.meta.dirname, '../..')

export type Guide = { readonly title: string; readonly page: string }

/** The table of guides in docs/README.md, and the tutorial above it. */
export function guides(): readonly Guide[] {
  const index = readFileSync(join(root, 'docs/README.md'), 'utf8')
  const section = /^## Guides\n([\s\S]*?)^## /m.exec(index)?.[1] ?? ''
  const listed = [...section.matchAll(/^\| \[([^\]]+)\]\(([\w-]+\.md)\)/gm)].map(([, title, page]) => ({
    title: title!,
    page: page!,
  }))
  return [...listed, { title: 'Tutorial', page: 'tutorial.md' }]
}

export type Block = { readonly language: string; readonly words: readonly string[]; readonly text: string }

/** The fenced blocks of a page. */
export function blocksOf(page: string): readonly Block[] {
  const text = readFileSync(join(root, 'docs', page), 'utf8')
  return [...text.matchAll(/^```(\S+)([^\n]*)\n([\s\S]*?)^```$/gm)].map(([, language, words, body]) => ({
    language: language!,
    words: words!.trim().split(/\s+/),
    text: body!,
  }))
}

export const isRun = ({ words }: Block): boolean => words.includes('run')

/** The variables of the server that a page asks for. */
export function variablesOf(blocks: readonly Block[], addresses: Addresses): Record<string, string> {
  const settings = blocks.filter((block) => block.language === 'ini' && isRun(block)).map(({ text }) => text)
  const lines = [...settings, ...copiedSettings(blocks)]
    .flatMap((text) => placed(text, addresses).split('\n'))
    .filter((line) => /^\w+=/.test(line))
  return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2) as [string, string]))
}

/** The files that a page copies to `.env`. */
const copiedSettings = (blocks: readonly Block[]): string[] =>
  blocks
    .filter(({ words }) => words.includes('start'))
    .flatMap(({ text }) => [...text.matchAll(/^cp (\S+) \.env$/gm)])
    .map(([, file]) => readFileSync(join(root, file!), 'utf8'))

/** The address that pages call the server by, that of a frontend, and that of S3: tests have others. */
export type Addresses = { readonly server: string; readonly frontend: string; readonly s3?: string }

const pagesS3 = 'https://s3.example.com'

const placed = (text: string, { server, frontend, s3 = pagesS3 }: Addresses): string =>
  text
    .replaceAll(/http:\/\/(127\.0\.0\.1|localhost):8055/g, (_whole, host) => `http://${host}:${new URL(server).port}`)
    .replaceAll('http://localhost:3000', frontend)
    .replaceAll(pagesS3, s3)

/** Writes the files of a page into a directory that looks like the checkout. */
export async function saveFiles(directory: string, blocks: readonly Block[], addresses: Addresses): Promise<void> {
  for (const name of ['bin', 'clients', 'examples', 'node_modules', 'package.json', 'scripts', 'src'])
    await symlink(join(root, name), join(directory, name))
  // As a project has it. npx would find it there as well, in a second of processor time, and would first install a checkout.
  await mkdir(join(directory, '.bin'))
  await symlink(join(root, 'bin/daybook.js'), join(directory, '.bin/daybook'))
  await writeFile(join(directory, '.bin/npx'), '#!/bin/sh\nexec "$@"\n', { mode: 0o755 })
  await mkdir(join(directory, 'migrations'))
  for (const { words, text } of blocks) {
    const name = words.find((word) => word.startsWith('file='))?.slice(5)
    if (name === undefined) continue
    await mkdir(dirname(join(directory, name)), { recursive: true })
    await writeFile(join(directory, name), placed(text, addresses))
  }
}

/** Whether a page's server stores files in S3. */
export const needsS3 = (blocks: readonly Block[]): boolean =>
  blocks.some((block) => isRun(block) && block.text.includes(pagesS3))

/** Pages whose commands go on in the session of a guide. */
const goneOnWith: Readonly<Record<string, readonly string[]>> = { 'files.md': ['assets.md'] }

/** The blocks of a guide, and of the pages that go on with its session. */
export const sessionOf = (page: string): readonly Block[] =>
  [page, ...(goneOnWith[page] ?? [])].flatMap((one) => blocksOf(one))

type Step = { readonly script: string; readonly expected: string | undefined }

/** The commands of a page, each with what it shall print. */
export function stepsOf(blocks: readonly Block[], addresses: Addresses): readonly Step[] {
  return blocks.filter(isRun).flatMap(({ language, text }) => {
    if (language === 'sh') return shellSteps(placed(text, addresses))
    return language === 'http' ? [httpStep(placed(text, addresses))] : []
  })
}

function shellSteps(text: string): Step[] {
  const steps: { script: string; expected: string | undefined }[] = []
  for (const line of text.split('\n')) {
    const last = steps.at(-1)
    if (line.startsWith('# ') && last !== undefined) last.expected = `${last.expected ?? ''}${line.slice(2)}\n`
    else if (last === undefined || last.expected !== undefined) steps.push({ script: `${line}\n`, expected: undefined })
    else last.script += `${line}\n`
  }
  return steps.filter(({ script }) => script.trim() !== '')
}

/** As a command of curl. */
function httpStep(text: string): Step {
  const [request = '', expected = ''] = text.split(/^HTTP\/1\.1 /m)
  const [head = '', ...body] = request.trim().split('\n\n')
  const [line = '', ...headers] = head.split('\n')
  const [method = '', ...path] = line.split(' ')
  const payload = body.join('\n\n')
  const parts = [
    `curl -sS -g -X ${method} "$URL"${quoted(path.join('%20'))}`,
    ...headers.map((header) => `-H ${quoted(header)}`),
    ...(payload === '' ? [] : [`--data-binary ${quoted(payload)}`]),
    `-w '\\n%{http_code}'`,
  ]
  const [status = '', ...answer] = expected.split('\n')
  return { script: `${parts.join(' ')}\n`, expected: `${answer.join('\n')}\n${status.split(' ')[0]}` }
}

const quoted = (text: string): string =>
  `'${text.replaceAll("'", `'\\''`).replaceAll(/\{\{(\w+)\}\}/g, (_whole, name) => `'"$${name}"'`)}'`

/** Whether a command printed what the page shows. */
export function prints(expected: string, printed: string): boolean {
  const plain = (text: string) => text.replaceAll(/\s/g, '')
  const parts = plain(expected)
    .split('…')
    .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return new RegExp(`^${parts.join('[\\s\\S]*?')}$`).test(plain(printed))
}

/** Between the outputs of two commands. */
const mark = '\u001e'

/**
 * Runs the commands of a page in one bash session, up to the first that fails or prints something else.
 * Gives what is wrong, or nothing.
 */
export async function follow(
  steps: readonly Step[],
  directory: string,
  env: Readonly<Record<string, string>>,
  timeoutMs = 150_000,
): Promise<string | undefined> {
  const script = steps.map((step) => `${step.script}printf '${mark}%d${mark}' $?\n`).join('')
  const { PATH = '', HOME = '' } = process.env
  const path = [dirname(process.execPath), join(directory, '.bin'), PATH].join(':')
  const shell = spawn('bash', ['-c', script], {
    cwd: directory,
    env: { PATH: path, HOME, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    // What it leaves in the background ends with it.
    detached: true,
  })
  let printed = ''
  for (const stream of [shell.stdout, shell.stderr]) stream.on('data', (chunk) => (printed += chunk))
  const closed = once(shell, 'close')
  const timer = setTimeout(() => end(shell.pid!), timeoutMs)
  await once(shell, 'exit')
  clearTimeout(timer)
  end(shell.pid!)
  await closed
  const outputs = printed.split(mark)
  for (const [at, { script, expected }] of steps.entries()) {
    const [output = '', status] = [outputs[2 * at], outputs[2 * at + 1]]
    const said = `${script.trim()}\n--- printed (status ${status ?? 'none'}):\n${output.trim()}`
    if (status !== '0') return said
    if (expected !== undefined && !prints(expected, output)) return `${said}\n--- but not:\n${expected.trim()}`
  }
  return undefined
}

/** Ends a process group. */
function end(pid: number): void {
  try {
    process.kill(-pid, 'SIGTERM')
  } catch (error) {
    if ((error as { code?: string }).code !== 'ESRCH') throw error
  }
}

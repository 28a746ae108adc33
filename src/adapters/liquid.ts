import type { Liquid } from 'liquidjs'
import { onFirstUse } from '../language/once.ts'

const liquidjs = onFirstUse<typeof import('liquidjs')>('liquidjs')

/** The bounds of a template: characters of its text, milliseconds, and objects and characters it makes. */
const limits = { parseLimit: 500_000, renderLimit: 500, memoryLimit: 5_000_000 }

/** A template that cannot be read, or that breaks a limit. The message is for its author. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'
}

/**
 * Renders a Liquid text. Variables are plain data: only their own properties can be reached, and their values are
 * never read as Liquid. Undefined ones are empty. `html` escapes every value unless the template says `| raw`.
 *
 * There is no loader: `include`, `render`, `layout` and `block` do not exist, and nothing can name a file.
 *
 * @throws {TemplateError}
 */
export function renderLiquid(source: string, variables: object, format: 'html' | 'text'): string {
  try {
    return engineOf(format).parseAndRenderSync(source, variables) as string
  } catch (error) {
    throw new TemplateError((error as Error).message.split('\n', 1)[0], { cause: error })
  }
}

const refuse = (): never => {
  throw new Error('templates cannot load files')
}

const noFiles = {
  exists: async () => false,
  existsSync: () => false,
  readFile: async () => refuse(),
  readFileSync: refuse,
  resolve: refuse,
}

const engines = new Map<'html' | 'text', Liquid>()

function engineOf(format: 'html' | 'text'): Liquid {
  const engine = engines.get(format) ?? openEngine(format === 'html' ? { outputEscape: 'escape' } : {})
  engines.set(format, engine)
  return engine
}

function openEngine(options: { outputEscape?: 'escape' }): Liquid {
  const engine = new (liquidjs().Liquid)({
    ...limits,
    ...options,
    fs: noFiles,
    ownPropertyOnly: true,
    strictFilters: true,
    relativeReference: false,
    dynamicPartials: false,
    timezoneOffset: 0,
    locale: 'en-US',
  })
  for (const tag of ['include', 'render', 'layout', 'block']) delete engine.tags[tag]
  return engine
}

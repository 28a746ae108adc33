import { type ComponentType, createElement, type ReactNode, use } from 'react'

/** A component whose code is loaded by its first use, or before. */
type LazyComponent<Props> = ((props: Props) => ReactNode) & { readonly preload: () => Promise<void> }

type PropsOf<Component> = Component extends (props: infer Props) => unknown ? Props : never

/** A part of the console could not be loaded. */
export class PartMissing extends Error {
  /** The build that the server has by now, where that is another one than this page is of. */
  readonly build: string | undefined

  constructor(message: string, build?: string) {
    super(message)
    this.build = build
  }
}

/** What makes each part that could not be loaded forget that. */
const failures = new Set<() => void>()

/** The parts that could not be loaded are asked for again by whoever shows them next. */
export function forgetFailures(): void {
  for (const forget of failures) forget()
  failures.clear()
}

/**
 * The component of that name of a module that is a file of its own. Where the file cannot be had, showing it throws
 * {@link PartMissing} until {@link forgetFailures} or another `preload`: the page itself goes on.
 */
export function lazyComponent<Module, Name extends keyof Module>(
  load: () => Promise<Module>,
  name: Name,
): LazyComponent<PropsOf<Module[Name]>> {
  type Props = PropsOf<Module[Name]> & object
  let loaded: ComponentType<Props> | undefined
  let loading: Promise<ComponentType<Props>> | undefined
  const forget = () => {
    loading = undefined
  }
  const read = async () => {
    try {
      await Promise.all([...lostStyles].map(loadStyle))
      loaded = (await load())[name] as ComponentType<Props>
      return loaded
    } catch (cause) {
      failures.add(forget)
      throw await missing(cause)
    }
  }
  const start = () => {
    loading ??= read()
    return loading
  }
  const Lazy = (props: Props) => createElement(loaded ?? use(start()), props)
  const preload = async () => {
    if (failures.delete(forget)) forget()
    await start()
  }
  return Object.assign(Lazy, { preload }) as unknown as LazyComponent<PropsOf<Module[Name]>>
}

/** Style sheets that could not be loaded, which Vite takes for loaded from then on. */
const lostStyles = new Set<string>()

/** Remembers the style sheets that cannot be loaded, so that the next attempt at a part asks for them too. */
export function keepLostStyles(): void {
  const keep = ({ target }: Event) => {
    if (!(target instanceof HTMLLinkElement) || target.rel !== 'stylesheet') return
    lostStyles.add(target.href)
    target.remove()
  }
  document.addEventListener('error', keep, true)
}

function loadStyle(href: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href, crossOrigin: '' })
  link.addEventListener('load', () => {
    lostStyles.delete(href)
    resolve()
  })
  link.addEventListener('error', () => reject(new Error(`${href} could not be loaded`)))
  document.head.append(link)
  return promise
}

/** A build of the server replaces the files of the one before. Without the server, nothing says that there is another one. */
async function missing(cause: unknown): Promise<PartMissing> {
  const html = await fetch('/console/', { cache: 'no-store' }).then(
    (response) => (response.ok ? response.text() : undefined),
    () => undefined,
  )
  if (html === undefined) return new PartMissing('This page could not be loaded: the server does not answer')
  const present = buildOf(new DOMParser().parseFromString(html, 'text/html'))
  if (present !== undefined && present !== buildOf(document))
    return new PartMissing('The server has another version of the console', present)
  return new PartMissing(`This page could not be loaded: ${cause instanceof Error ? cause.message : cause}`)
}

/** The name of a build is that of its first script, which has a hash of what is in it. */
const buildOf = (page: Document) => page.querySelector('script[type=module][src]')?.getAttribute('src') ?? undefined

const triedBuild = 'console.build'

/** Loads the whole page anew for the build that the server has by now, once: another load would bring the same. */
export function reloadForBuild(build: string): void {
  if (sessionStorage.getItem(triedBuild) === build) return
  sessionStorage.setItem(triedBuild, build)
  location.reload()
}

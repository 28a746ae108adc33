import { useRouter } from '@tanstack/react-router'
import { type RefObject, useEffect, useEffectEvent, useRef, useState } from 'react'
import {
  type Call,
  type Context,
  type EditorContext,
  type Hello,
  type PageContext,
  protocolVersion,
  type Theme,
  type Unwelcome,
  type Welcome,
} from '../../../clients/console-messages.ts'
import { useMe } from '../app/session.ts'
import { sameValue } from '../pages/data/values.ts'
import { Button } from '../ui/button.tsx'
import { Loading, Note } from '../ui/states.tsx'
import { notify } from '../ui/toast.tsx'
import { isDataCall, performData } from './data.ts'
import type { Extension } from './extensions.ts'
import styles from './frame.module.css'
import { type End, type Host, openHost, Refused } from './host.ts'
import { useLook } from './look.ts'

type FrameProps = {
  readonly extension: Extension
  /** Of its files. */
  readonly file: string
  readonly title: string
  /** Where it is shown; its `path` and `value` are told as they change. */
  readonly place: PageContext | EditorContext
  /** Of an editor: takes what the field is to hold. */
  readonly onValue?: (value: unknown) => void
}

type Ending = End | 'left' | 'version'

const words: Readonly<Record<Ending, string>> = {
  flood: 'It asked for too much at once and was stopped.',
  silence: 'It does not answer.',
  left: 'It has left its page.',
  version: 'It is made for another version of the console.',
}

/** Until a frame has introduced itself. Milliseconds. */
const helloWithinMs = 10_000

/** Pixels. */
const heights = { least: 32, usual: 120, most: 1200 }

/** A page of an extension in a frame that reaches nothing of the console but what it is answered. */
export function ExtensionFrame(props: FrameProps) {
  const [attempt, setAttempt] = useState(0)
  const [ending, setEnding] = useState<Ending>()
  if (ending === undefined) return <Live key={attempt} {...props} onEnd={setEnding} />
  const again = () => {
    setEnding(undefined)
    setAttempt(attempt + 1)
  }
  return (
    <div role="alert" className={styles.ended}>
      <Note kind="warning">
        {props.extension.title} is not shown. {words[ending]}{' '}
        <Button size="s" onClick={again}>
          Load it again
        </Button>
      </Note>
    </div>
  )
}

type LiveProps = FrameProps & { readonly onEnd: (why: Ending) => void }

function Live(props: LiveProps) {
  const { extension, file, title, place, onEnd } = props
  const theme = useLook()
  const frame = useRef<HTMLIFrameElement>(null)
  const loads = useRef(0)
  const [height, setHeight] = useState<number>(heights.usual)
  // A later list has other keys for the same files.
  const [src] = useState(() => extension.base + file)
  const isReady = useLine(frame, props, { theme, onHeight: setHeight })
  const onLoad = () => {
    loads.current += 1
    if (loads.current > 1) onEnd('left')
  }
  return (
    <div className={styles.frame} data-kind={place.kind}>
      {!isReady && <Loading lines={place.kind === 'page' ? 6 : 1} label={`${title} is loading`} />}
      <iframe
        ref={frame}
        src={src}
        title={title}
        sandbox="allow-scripts"
        allow=""
        referrerPolicy="no-referrer"
        data-ready={isReady}
        style={{ colorScheme: theme.scheme, ...(place.kind === 'editor' && { height }) }}
        onLoad={onLoad}
      />
    </div>
  )
}

type Surroundings = { readonly theme: Theme; readonly onHeight: (height: number) => void }

/** Answers the frame once it has introduced itself, and tells it what changes. Whether it has. */
function useLine(frame: RefObject<HTMLIFrameElement | null>, props: LiveProps, { theme, onHeight }: Surroundings) {
  const { extension, place, onEnd } = props
  const me = useMe()
  const router = useRouter()
  const host = useRef<Host>(undefined)
  const known = useRef<unknown>(place.kind === 'editor' ? place.value : undefined)
  const [isReady, setReady] = useState(false)
  const perform = useEffectEvent((call: Call, signal: AbortSignal) => {
    if (call.call === 'value.set') known.current = call.args.value
    const go = (to: string) => router.history.push(`/console${to}`)
    return performCall(props, { go, onHeight }, call, signal)
  })
  const end = useEffectEvent((why: Ending) => onEnd(why))
  const context = useEffectEvent(
    (): Context => ({
      ...place,
      ...{ extension: extension.name, locale: navigator.language, theme, user: { id: me.id, name: me.name } },
    }),
  )
  useEffect(() => {
    const stopWaiting = awaitHello(frame, (around, hello) => {
      const isKnown = hello?.version === protocolVersion
      if (!isKnown || around === undefined) {
        const answer: Unwelcome = { type: 'daybook.unwelcome', version: protocolVersion }
        around?.postMessage(answer, '*')
        return end(around === undefined ? 'silence' : 'version')
      }
      const { port1, port2 } = new MessageChannel()
      host.current = openHost(port1, { perform: (call, signal) => perform(call, signal), onEnd: (why) => end(why) })
      const answer: Welcome = { type: 'daybook.welcome', version: protocolVersion, context: context() }
      // An origin that is nobody's cannot be named.
      around.postMessage(answer, '*', [port2])
      setReady(true)
    })
    return () => {
      stopWaiting()
      host.current?.close()
    }
  }, [frame])
  useEffect(() => host.current?.tell({ told: 'theme', theme }), [theme])
  const path = place.kind === 'page' ? place.path : undefined
  useEffect(() => {
    if (path !== undefined) host.current?.tell({ told: 'path', path })
  }, [path])
  const value = place.kind === 'editor' ? place.value : undefined
  useEffect(() => {
    // It knows the values that it has set itself.
    if (sameValue(value, known.current)) return
    known.current = value
    host.current?.tell({ told: 'value', value })
  }, [value])
  return isReady
}

/** Calls once: with what the frame says of itself, or with nothing where it says nothing in time. Gives what ends the waiting. */
function awaitHello(
  frame: RefObject<HTMLIFrameElement | null>,
  then: (around: Window | undefined, hello: Partial<Hello> | undefined) => void,
): () => void {
  const stop = () => {
    clearTimeout(timer)
    window.removeEventListener('message', listen)
  }
  const listen = ({ source, data }: MessageEvent) => {
    const around = frame.current?.contentWindow
    const hello = Object(data) as Partial<Hello>
    if (source === null || source !== around || hello.type !== 'daybook.hello') return
    stop()
    then(around, hello)
  }
  const timer = setTimeout(() => {
    stop()
    then(undefined, undefined)
  }, helloWithinMs)
  window.addEventListener('message', listen)
  return stop
}

type Effects = { readonly go: (to: string) => void; readonly onHeight: (height: number) => void }

/** @throws {Refused | DaybookError} */
async function performCall(
  { extension, place, onValue }: FrameProps,
  { go, onHeight }: Effects,
  call: Call,
  signal: AbortSignal,
): Promise<unknown> {
  if (isDataCall(call)) return performData(extension, call, signal)
  if (call.call === 'toast')
    return notify(call.args.title, { text: [call.args.text, extension.title].filter(Boolean).join(' · ') })
  // Nothing comes up by itself, only for whoever has just pressed a key in the frame.
  if (call.call === 'palette' && navigator.userActivation.isActive)
    return void window.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true }))
  if (call.call === 'navigate' && place.kind === 'page') return go(call.args.to)
  if (call.call === 'resize' && place.kind === 'editor')
    return onHeight(Math.min(heights.most, Math.max(heights.least, call.args.height)))
  if (call.call === 'value.set' && onValue !== undefined) return onValue(call.args.value)
  throw new Refused('WRONG_PLACE', `${call.call} has no meaning here`)
}

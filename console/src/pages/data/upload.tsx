import { useRef, useState } from 'react'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { takeFiles } from '../../ui/field.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import type { Choice } from './draft.ts'
import styles from './upload.module.css'

/** The upload that runs, and how much of it has arrived. */
type Running = { readonly name: string; readonly share: number; readonly stop: () => void }

/** Uploads files one after the other. What has arrived stays, also where one is refused or the others are stopped. */
export function useUpload() {
  const [running, setRunning] = useState<Running>()
  /** Gives the row of each as it has arrived, and in the end whether all of them have. */
  const send = async (files: readonly File[], onEach: (file: Choice) => void): Promise<boolean> => {
    const stopping = new AbortController()
    const stop = () => stopping.abort()
    try {
      for (const file of files) {
        const show = (share: number) => setRunning({ name: file.name, share, stop })
        show(0)
        const id = await client.files.upload(file, { onProgress: show, signal: stopping.signal })
        onEach({ id, title: file.name })
      }
      return true
    } catch (error) {
      if (stopping.signal.aborted) notify('The upload was stopped')
      else notifyError(error)
      return false
    } finally {
      setRunning(undefined)
    }
  }
  return { running, send }
}

/** How far it is, with a button that stops it. */
export function Uploading({ name, share, stop }: Running) {
  return (
    <div className={styles.uploading} role="status">
      <label>
        {name}
        <progress value={share} />
      </label>
      <Button size="s" onClick={stop}>
        Stop
      </Button>
    </div>
  )
}

type UploadProps = { readonly isMany?: boolean; readonly onEach: (file: Choice) => void }

/** A button that uploads a file, or several, and gives the row of each. */
export function Upload({ isMany = false, onEach }: UploadProps) {
  const input = useRef<HTMLInputElement>(null)
  const { running, send } = useUpload()
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple={isMany}
        hidden
        aria-hidden="true"
        tabIndex={-1}
        onChange={({ target }) => void send(takeFiles(target), onEach)}
      />
      <Button size="s" isBusy={running !== undefined} onClick={() => input.current?.click()}>
        {isMany ? 'Upload files' : 'Upload a file'}
      </Button>
      {running !== undefined && <Uploading {...running} />}
    </>
  )
}

import { type ClipboardEvent, type DragEvent, type ReactNode, useEffect, useRef, useState } from 'react'
import styles from './drop.module.css'
import { notifyProblem } from './toast.tsx'

/** What lies over the page: what is pasted there is not for the page. */
const overlays = '[role=dialog], [role=alertdialog], [role=menu], [role=listbox]'

/** Whether the drag began in this page: browsers offer a dragged image of a page as a file, too. */
let isOwnDrag = false

const holdsFiles = (data: DataTransfer): boolean => data.types.includes('Files')

/** Takes the files of a drop or paste. A folder has no content of its own to read. */
function takeFrom(data: DataTransfer): { readonly files: readonly File[]; readonly folders: readonly string[] } {
  const items = [...data.items].filter(({ kind }) => kind === 'file')
  const folders = items.flatMap((item) => {
    const entry = item.webkitGetAsEntry()
    return entry?.isDirectory === true ? [entry.name] : []
  })
  return { files: [...data.files].filter(({ name }) => !folders.includes(name)), folders }
}

/**
 * Keeps the browser from leaving the console for a file that is dropped outside a drop area. Inputs for files take drops themselves.
 */
export function refuseStrayDrops(): void {
  const refuse = (event: globalThis.DragEvent) => {
    const { dataTransfer, target, defaultPrevented } = event
    if (defaultPrevented || dataTransfer === null || !holdsFiles(dataTransfer)) return
    if (target instanceof Element && target.matches('input[type=file]:enabled')) return
    event.preventDefault()
    dataTransfer.dropEffect = 'none'
  }
  window.addEventListener('dragover', refuse)
  window.addEventListener('drop', refuse)
  window.addEventListener('dragstart', () => {
    isOwnDrag = true
  })
  window.addEventListener('dragend', () => {
    isOwnDrag = false
  })
}

type DropAreaProps = {
  /** Shown while files are over it: "Drop to upload". */
  readonly label: string
  readonly isMany?: boolean
  readonly isDisabled?: boolean
  /** A paste anywhere on the page is for it, not only one inside it. */
  readonly takesPastes?: 'anywhere' | 'inside'
  readonly onFiles: (files: readonly File[]) => void
  readonly children: ReactNode
}

/** Takes files that are dropped on what it holds, or pasted there. Beside it there must be a button for the keyboard. */
export function DropArea({
  label,
  isMany = false,
  isDisabled = false,
  takesPastes = 'inside',
  onFiles,
  children,
}: DropAreaProps) {
  const area = useRef<HTMLDivElement>(null)
  const [isOver, setOver] = useState(false)
  const isHere = isOver && !isDisabled
  const take = (data: DataTransfer) => {
    const { files, folders } = takeFrom(data)
    if (folders.length > 0)
      notifyProblem('Folders cannot be uploaded', `${folders.join(', ')}: open the folder and choose its files.`)
    if (files.length > 1 && !isMany)
      notifyProblem('One file at a time', `Only one file fits here, and these are ${files.length}. None was taken.`)
    else if (files.length > 0) onFiles(files)
  }
  // What lies over the page is inside it for React alone.
  const isFor = ({ target, dataTransfer }: DragEvent) =>
    !isDisabled && !isOwnDrag && holdsFiles(dataTransfer) && area.current?.contains(target as Node) === true
  const onDrag = (event: DragEvent) => {
    if (event.defaultPrevented || !isFor(event)) return
    event.preventDefault()
    event.dataTransfer.dropEffect = 'copy'
    setOver(true)
  }
  const onDrop = (event: DragEvent) => {
    setOver(false)
    if (event.defaultPrevented || !isFor(event)) return
    event.preventDefault()
    take(event.dataTransfer)
  }
  const onPaste = (event: ClipboardEvent | globalThis.ClipboardEvent) => {
    const { clipboardData, defaultPrevented } = event
    if (isDisabled || defaultPrevented || clipboardData === null || !holdsFiles(clipboardData)) return
    // Office programs add a picture of what is copied to its text.
    if (clipboardData.types.includes('text/plain')) return
    event.preventDefault()
    take(clipboardData)
  }
  usePastesAnywhere(takesPastes === 'anywhere', onPaste)
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a button does the same for the keyboard
    <div
      ref={area}
      className={styles.area}
      onDragEnter={onDrag}
      onDragOver={onDrag}
      onDragLeave={({ currentTarget, relatedTarget }) => {
        if (!currentTarget.contains(relatedTarget as Node | null)) setOver(false)
      }}
      onDrop={onDrop}
      {...(takesPastes === 'inside' && { onPaste })}
    >
      {children}
      {isHere && (
        <div className={styles.over}>
          <strong>{label}</strong>
        </div>
      )}
    </div>
  )
}

function usePastesAnywhere(isOn: boolean, onPaste: (event: globalThis.ClipboardEvent) => void): void {
  const last = useRef(onPaste)
  last.current = onPaste
  useEffect(() => {
    if (!isOn) return
    const listen = (event: globalThis.ClipboardEvent) => {
      if (event.target instanceof Element && event.target.closest(overlays) === null) last.current(event)
    }
    document.addEventListener('paste', listen)
    return () => document.removeEventListener('paste', listen)
  }, [isOn])
}

"""All generations of TensorFlow: the rows of event files, and of the files that C++ opens for Python.

Call paths (read from 1.13.1, 1.14.0, 1.15.5, 2.3.4, 2.6.5, 2.12.1, 2.15.1 and 2.21.0):

    tf.summary.create_file_writer                        -> gen_summary_ops.create_summary_file_writer
    tf.summary.FileWriter, tf.compat.v1.summary.FileWriter -> EventFileWriter                a queue and a thread
    tf.io.gfile                                          -> file_io.FileIO, ...
"""
from py_hooks.engine.patch import Patch
from py_hooks.tensorflow.files import event_files, gfile

_SUMMARY = "tensorflow.python.ops.gen_summary_ops"
_FILE_IO = "tensorflow.python.lib.io.file_io"
_RECORDS = "tensorflow.python.lib.io.tf_record"
_WRITER = "tensorflow.python.summary.writer.event_file_writer"

ROWS = (
    #     module    attribute                     advice                 why
    Patch(_SUMMARY, "create_summary_file_writer", event_files.create,    "write each event once"),
    Patch(_SUMMARY, "close_summary_writer",       event_files.close,     "write each event once"),
    Patch(_WRITER,  "EventFileWriter.__init__",   event_files.created,   "write each event once"),
    Patch(_WRITER,  "EventFileWriter.add_event",  event_files.add_event, "write each event once"),
    Patch(_WRITER,  "EventFileWriter.reopen",     event_files.reopen,    "write each event once"),
    Patch(_FILE_IO, "FileIO.__init__",            gfile.opened,          "note which files are made"),
    Patch(_RECORDS, "TFRecordWriter.__init__",    gfile.written_records, "note which files are made"),
    Patch(_FILE_IO, "create_dir_v2",              gfile.make_folders,    "note which files are made"),
    Patch(_FILE_IO, "recursive_create_dir_v2",    gfile.make_folders,    "note which files are made"),
    Patch(_FILE_IO, "rename_v2",                  gfile.rename,          "note which files are moved"),
    Patch(_FILE_IO, "copy_v2",                    gfile.copy,            "note which files are made"),
    Patch(_FILE_IO, "delete_file_v2",             gfile.remove,          "note which files are removed"),
    Patch(_FILE_IO, "delete_recursively_v2",      gfile.remove_folder,   "note which files are removed"),
)
